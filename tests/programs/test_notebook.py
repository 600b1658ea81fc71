"""The notebook, run by a real kernel from its first cell to its last."""

import os
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(320)]

QUICKSTART = Path(__file__).parents[2] / "notebooks" / "quickstart.ipynb"
CELL_SECONDS = 200


def printed(cell: nbformat.NotebookNode) -> str:
    """What a cell printed and what it ended in."""
    texts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
    return "".join(texts)


def test_the_quickstart_tells_its_story(tmp_path, monkeypatch):
    for name, value in {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}.items():
        monkeypatch.setitem(os.environ, name, value)
    notebook = nbformat.read(QUICKSTART, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code), "cleared before it is committed"
    installed = code[0].source.partition("%pip install ")[2].split()
    assert installed == ["--quiet", '"{PACKAGE}"', "matplotlib"], "not a name that nobody holds in an index"

    NotebookClient(notebook, timeout=CELL_SECONDS, resources={"metadata": {"path": str(tmp_path)}}).execute()

    said = [printed(cell) for cell in code]
    assert [text.strip() for text in said if text.strip() == "3000"] == ["3000", "3000"], "loaded once, and not again"
    assert any("image/png" in output.get("data", {}) for cell in code for output in cell.outputs)
    assert any("[CONFLICT]" in text for text in said)
    assert "40 aircraft before, 39 now" in said[-1]
