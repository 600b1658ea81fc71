"""The notebooks, run by a real kernel from the first cell to the last."""

import json
import os
import sys
from importlib import metadata
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.spark.short_runs import conf_folder

pytestmark = [pytest.mark.spark, pytest.mark.timeout(320)]

ROOT = Path(__file__).parents[2]
CELL_SECONDS = 200
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
RESULT = """
import json

def drawn(figure):
    return [
        {
            label: [float(y) for y in (part.get_ydata() if hasattr(part, "get_ydata") else part.datavalues)]
            for part, label in zip(*axes.get_legend_handles_labels())
        }
        for axes in figure.axes
    ]

print(json.dumps(VALUE, default=int))
"""
"""A last cell, which prints a value as JSON. `drawn` returns the series of a figure, by axes and label."""


def printed(cell: nbformat.NotebookNode) -> str:
    """Return the text and the result of a cell."""
    texts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
    return "".join(texts)


def code_of(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def has_picture(cell: nbformat.NotebookNode) -> bool:
    return any("image/png" in output.get("data", {}) for output in cell.outputs)


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """A function that runs a notebook and returns its code cells, and the value of an expression at its end."""
    environment = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"TMPDIR": str(tmp_path), "SPARK_LOCAL_DIRS": str(tmp_path)}
    environment["SPARK_CONF_DIR"] = conf_folder(tmp_path / "conf")
    for name, value in environment.items():
        monkeypatch.setitem(os.environ, name, value)

    def ran(name, value="None"):
        notebook = nbformat.read(ROOT / name, as_version=4)
        code = code_of(notebook)
        assert not any(cell.outputs or cell.execution_count for cell in code), "cleared before it is committed"
        last = nbformat.v4.new_code_cell(RESULT.replace("VALUE", value))
        notebook.cells.append(last)
        NotebookClient(notebook, timeout=CELL_SECONDS, resources={"metadata": {"path": str(tmp_path)}}).execute()
        return code, json.loads(printed(last))

    return ran


def test_all_notebooks_begin_with_the_same_cells():
    begins = {tuple(cell.source for cell in code_of(nbformat.read(path, as_version=4))[:2]) for path in NOTEBOOKS}
    assert len(NOTEBOOKS) == 5
    [(install, setup)] = begins
    assert '"spark.sql.connect.serverStacktrace.enabled", "false"' in setup
    installed = install.partition("%pip install ")[2].splitlines()[0].split()
    assert installed == ["--quiet", '"{PACKAGE}"', "matplotlib"], "a path, because the index has no such package"


def test_first_cell_installs_the_clone_that_has_the_notebook(tmp_path, monkeypatch):
    install = code_of(nbformat.read(NOTEBOOKS[0], as_version=4))[0].source
    code = install.replace('%pip install --quiet "{PACKAGE}" matplotlib', "installed.append(PACKAGE)")
    installed: list[str] = []
    monkeypatch.chdir(ROOT / "notebooks")
    exec(code, {"installed": installed})  # noqa: S102
    assert installed == [], "it is installed here"
    monkeypatch.setattr(metadata, "distributions", lambda **_: iter(()))
    exec(code, {"installed": installed})  # noqa: S102
    assert installed == [str(ROOT)]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="PACKAGE"):
        exec(code, {"installed": installed})  # noqa: S102


def test_first_cells_reject_a_folder_of_the_driver_on_databricks(monkeypatch):
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "18.0")
    setup = code_of(nbformat.read(NOTEBOOKS[0], as_version=4))[1].source
    with pytest.raises(ValueError, match="FOLDER"):
        exec(setup, {})  # noqa: S102


def test_quickstart_loads_once_and_rejects_a_stale_writer(ran):
    code, [series] = ran("notebooks/quickstart.ipynb", "drawn(figure)")
    texts = [printed(cell).strip() for cell in code]
    assert texts.count("3000") == 2, "loaded once, and not again"
    assert any("[CONFLICT]" in text for text in texts)
    assert any("40 aircraft before, 39 now" in text for text in texts)
    assert has_picture(code[-1])
    assert series == {"rows in the log": [3000, 1, 0]}


def test_killed_bulk_load_resumes_without_doubled_rows(ran):
    values = "[seen, report, load.returncode, len(records), records.key.nunique(), drawn(figure)]"
    code, (seen, report, exit_code, rows, keys, [series]) = ran("notebooks/bulk-load.ipynb", values)
    assert has_picture(code[-1])
    assert exit_code == 0
    assert report["rows"] == rows == keys == 20_000
    assert 0 < report["appended_rows"] < 20_000 - 5_000, "the first run appended a quarter or more"
    assert "killed by signal 9" in "".join(map(printed, code))
    assert {"rows in the log", "rows stored twice", "SIGKILL", "same command again"} <= series.keys()
    in_log = series["rows in the log"]
    assert in_log == [rows for _, rows in seen] == sorted(in_log)
    assert (in_log[0], in_log[-1]) == (0, 20_000)
    assert set(series["rows stored twice"]) == {0}


def test_bootstrap_rejects_stale_rows_and_loses_no_change(ran):
    values = "[final, attempts[['appended', 'rejected']].values.tolist(), drawn(figure)]"
    code, (final, attempts, [offsets, counts]) = ran("notebooks/bootstrap.ipynb", values)
    assert has_picture(code[-1])
    assert final == 40 * (100 + 20) - 17
    assert attempts == [[28, 12], [7, 5], [5, 0]]
    ends = [offsets["partition 0"], offsets["partition 1"]]
    assert [sum(each) for each in zip(*ends, strict=True)] == [40, 52, 80, 85, 92, 92, 97]
    assert counts == {"appended rows": [28, 7, 5], "rejected rows": [12, 5, 0]}


def test_stream_falls_behind_restarts_and_catches_up(ran):
    values = "[copied.count(), copied.select('key').distinct().count(), seen, stopped, resumed, drawn(figure)]"
    code, (rows, keys, seen, stopped, resumed, [counts, lag]) = ran("notebooks/streaming.ipynb", values)
    assert has_picture(code[-1])
    assert rows == keys == 11_000
    assert counts.keys() == {"produced", "copied", "query stopped", "query restarted"}
    behind = lag["records behind"]
    assert behind == [produced - copied for _, produced, copied in seen]
    *_, at_stop = (each for each in seen if each[0] < stopped)
    *_, at_restart = (each for each in seen if each[0] < resumed)
    assert 3_000 <= at_stop[2] <= at_restart[2] < 11_000, "the query restarted before it had copied all rows"
    assert max(behind) > 0
    assert behind[-1] == 0


def test_reader_sees_all_rows_of_an_atomic_load_or_none(ran):
    code, [parts, atomic] = ran("notebooks/atomic-loads.ipynb", "drawn(figure)")
    assert has_picture(code[-1])
    assert set(atomic["load"]) == {0, 10_000}
    assert set(atomic["load that fails"]) == {0}
    assert parts["load"][-1] == 10_000
    assert 0 < parts["load that fails"][-1] < 10_000, "the rows before the failure stay"


def test_the_key_value_store_tells_its_story(ran):
    code, _ = ran("examples/key_value_store/key-value-store.ipynb")
    said = "\n".join(map(printed, code))
    assert "[VERSION_MISMATCH]" in said
    assert "b'60' b'30'" in said, "both keys of the transaction"
    assert "acknowledged 200 and read 200" in said, "nothing acknowledged was lost with the leader"
    assert "200 values of the counter in the log" in said
    assert said.rstrip().endswith("[0, 0]"), "the nodes ended in order"
