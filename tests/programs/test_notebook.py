"""The notebooks, run by a real kernel from the first cell to the last."""

import os
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = [pytest.mark.spark, pytest.mark.timeout(320)]

ROOT = Path(__file__).parents[2]
CELL_SECONDS = 200


def printed(cell: nbformat.NotebookNode) -> str:
    """Return the text and the result of a cell."""
    texts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
    return "".join(texts)


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """A function that runs a notebook and returns its code cells."""
    for name, value in {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}.items():
        monkeypatch.setitem(os.environ, name, value)

    def ran(name):
        notebook = nbformat.read(ROOT / name, as_version=4)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert not any(cell.outputs or cell.execution_count for cell in code), "cleared before it is committed"
        NotebookClient(notebook, timeout=CELL_SECONDS, resources={"metadata": {"path": str(tmp_path)}}).execute()
        return code

    return ran


def test_the_quickstart_tells_its_story(ran):
    code = ran("notebooks/quickstart.ipynb")
    installed = code[0].source.partition("%pip install ")[2].split()
    assert installed == ["--quiet", '"{PACKAGE}"', "matplotlib"], "a path, because the index has no such package"
    said = [printed(cell) for cell in code]
    assert [text.strip() for text in said if text.strip() == "3000"] == ["3000", "3000"], "loaded once, and not again"
    assert any("image/png" in output.get("data", {}) for cell in code for output in cell.outputs)
    assert any("[CONFLICT]" in text for text in said)
    assert "40 aircraft before, 39 now" in said[-1]


def test_the_key_value_store_tells_its_story(ran):
    said = "\n".join(map(printed, ran("examples/key_value_store/key-value-store.ipynb")))
    assert "[VERSION_MISMATCH]" in said
    assert "b'60' b'30'" in said, "both keys of the transaction"
    assert "acknowledged 200 and read 200" in said, "nothing acknowledged was lost with the leader"
    assert "200 values of the counter in the log" in said
    assert said.rstrip().endswith("[0, 0]"), "the nodes ended in order"
