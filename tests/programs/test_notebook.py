"""The notebooks, run by a real kernel from the first cell to the last."""

import json
import os
import re
import sys
import sysconfig
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError
from packaging.utils import canonicalize_name

from tests.long import full
from tests.spark.short_runs import conf_folder

pytestmark = [pytest.mark.spark, pytest.mark.timeout(320)]

ROOT = Path(__file__).parents[2]
CELL_SECONDS = 200
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
RESULT = """
import json

import spark_cas

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

DBUTILS = """
import os
from types import SimpleNamespace

boxes = {}
dbutils = SimpleNamespace(
    library=SimpleNamespace(restartPython=lambda: os._exit(0)),
    widgets=SimpleNamespace(
        text=lambda name, default: boxes.setdefault(name, ENTERED.get(name, default)), get=lambda name: boxes[name]
    ),
)
"""
"""A substitute for the utilities of Databricks. A restart ends the process: the test starts the next one.

Each box of the notebook has the text that the user has entered, from a dictionary.
"""
ON_DATABRICKS = """
assert ".connect." in type(spark).__module__
assert boxes
assert all(os.path.isdir(entered) for entered in boxes.values()), "the notebook uses each text"
"""


def dbutils(**entered: str) -> str:
    return DBUTILS.replace("ENTERED", repr(entered))


def printed(cell: nbformat.NotebookNode) -> str:
    """Return the text and the result of a cell."""
    texts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
    return "".join(texts)


def code_of(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def has_picture(cell: nbformat.NotebookNode) -> bool:
    return any("image/png" in output.get("data", {}) for output in cell.outputs)


def client_of(notebook: nbformat.NotebookNode, folder: Path, kernel: str) -> NotebookClient:
    resources = {"metadata": {"path": str(folder)}}
    return NotebookClient(notebook, timeout=CELL_SECONDS, kernel_name=kernel, resources=resources)


classic_and_connect = pytest.mark.parametrize("ran", ["classic", *full("connect")], indirect=True)
connect_and_classic = pytest.mark.parametrize("ran", ["connect", *full("classic")], indirect=True)
"""Spark Connect uses the session of the other tests, which takes less time than a new one."""


@pytest.fixture
def ran(request, tmp_path, monkeypatch):
    """A function that runs a notebook and returns its code cells, and the value of an expression at its end.

    With the parameter "connect", it runs as on Databricks: with its utilities, on Spark Connect.
    """
    on_connect = getattr(request, "param", "classic") == "connect"
    environment = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"TMPDIR": str(tmp_path), "SPARK_LOCAL_DIRS": str(tmp_path)}
    environment["SPARK_CONF_DIR"] = conf_folder(tmp_path / "conf")
    if on_connect:
        request.getfixturevalue("spark")
        environment["SPARK_REMOTE"] = f"sc://127.0.0.1:{request.getfixturevalue('connect_port')}"
        environment["DATABRICKS_RUNTIME_VERSION"] = "18.0"
    for name, value in environment.items():
        monkeypatch.setitem(os.environ, name, value)

    def ran(name, value="None", kernel="python3"):
        notebook = nbformat.read(ROOT / name, as_version=4)
        code = code_of(notebook)
        assert not any(cell.outputs or cell.execution_count for cell in code), "cleared before it is committed"
        if kernel != "python3":
            notebook.cells.remove(code[0])  # it ran in the process before
        check = ON_DATABRICKS if on_connect else ""
        boxes = {"FOLDER": str(tmp_path / "logs"), "CHECKPOINT": str(tmp_path / "checkpoint")}
        if on_connect:
            notebook.cells.insert(0, nbformat.v4.new_code_cell(dbutils(**boxes)))
        last = nbformat.v4.new_code_cell(check + RESULT.replace("VALUE", value))
        notebook.cells.append(last)
        client_of(notebook, tmp_path, kernel).execute()
        return code, json.loads(printed(last))

    return ran


def test_all_notebooks_begin_with_the_same_cells():
    begins = {tuple(cell.source for cell in code_of(nbformat.read(path, as_version=4))[:2]) for path in NOTEBOOKS}
    assert len(NOTEBOOKS) == 5
    [(_, setup)] = begins
    assert '"spark.sql.connect.serverStacktrace.enabled", "false"' in setup


def test_first_cell_needs_a_path_outside_a_clone(tmp_path, monkeypatch):
    """The index has no such package."""
    install = code_of(nbformat.read(NOTEBOOKS[0], as_version=4))[0].source
    code = re.sub(r"( +)%pip .*", r"\1raise AssertionError", install)
    monkeypatch.chdir(tmp_path)
    exec(code, {})  # noqa: S102
    monkeypatch.setattr(metadata, "distributions", lambda **_: iter(()))
    with pytest.raises(ValueError, match="PACKAGE"):
        exec(code, {})  # noqa: S102


NOT_IN_RUNTIME = re.compile(
    r"(_?spark_cas|key_value_store|confluent_kafka|obstore|xxhash|matplotlib)\b(?!_)|.*\.pth$"
)


def wheel_of(folder, name, version, *requirements):
    """Write an empty wheel."""
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {each}" for each in requirements]
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        info = f"{name}-{version}.dist-info"
        wheel.writestr(f"{info}/METADATA", "\n".join(lines))
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture
def runtime_kernel(tmp_path, monkeypatch):
    """The name of a kernel whose packages are in two folders, as on Databricks: those of the runtime, and new ones.

    The runtime has neither the package nor all of its dependencies. Besides the index, pip finds a newer matplotlib,
    which needs a newer pyarrow than that of the runtime. Both are empty wheels.
    """
    runtime, wheels, spec = (tmp_path / name for name in ("runtime", "wheels", "jupyter/kernels/runtime"))
    for folder in (runtime, wheels, spec):
        folder.mkdir(parents=True)
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if not NOT_IN_RUNTIME.match(each.name):
            (runtime / each.name).symlink_to(each)
    venv.create(tmp_path / "venv")
    python = str(tmp_path / "venv/bin/python")
    [packages] = (tmp_path / "venv").glob("lib/python*/site-packages")
    (packages / "runtime.pth").write_text(f"{runtime}\n")
    command = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "runtime", "language": "python"}))
    wheel_of(wheels, "matplotlib", "999", "pyarrow>=999")
    wheel_of(wheels, "pyarrow", "999")
    monkeypatch.setenv("PIP_FIND_LINKS", " ".join([str(wheels), os.environ.get("PIP_FIND_LINKS", "")]))
    monkeypatch.setenv("JUPYTER_PATH", str(spec.parents[1]))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return "runtime"


def run_first_cell(kernel):
    """Run the first cell in the clone, until the restart ends its process."""
    cells = [nbformat.v4.new_code_cell(dbutils()), code_of(nbformat.read(NOTEBOOKS[0], as_version=4))[0]]
    with pytest.raises(DeadKernelError):
        client_of(nbformat.v4.new_notebook(cells=cells), ROOT / "notebooks", kernel).execute()


def test_first_cell_installs_the_clone_and_keeps_the_packages_of_the_runtime(runtime_kernel, tmp_path):
    run_first_cell(runtime_kernel)
    [packages] = (tmp_path / "venv").glob("lib/python*/site-packages")
    installed, kept = (
        {canonicalize_name(each.name) for each in metadata.distributions(path=[str(folder)])}
        for folder in (packages, tmp_path / "runtime")
    )
    assert installed == {"spark-cas", "confluent-kafka", "obstore", "xxhash", "matplotlib"}
    assert {"pyspark", "pyarrow", "pandas", "numpy"} <= kept


@pytest.mark.full
@pytest.mark.parametrize("ran", ["connect"], indirect=True)
def test_second_cell_runs_in_the_process_after_the_installation(ran, runtime_kernel, tmp_path):
    run_first_cell(runtime_kernel)
    _, file = ran("notebooks/quickstart.ipynb", "spark_cas.__file__", runtime_kernel)
    assert file.startswith(str(tmp_path / "venv"))


@pytest.mark.parametrize(("position", "box"), [(1, "FOLDER"), (2, "CHECKPOINT")])
def test_cell_needs_a_text_in_its_box_on_databricks(monkeypatch, position, box):
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "18.0")
    names = {"DATABRICKS": True, "FOLDER": "logs"}  # CHECKPOINT is in the third cell of this notebook
    exec(dbutils(), names)  # noqa: S102
    with pytest.raises(ValueError, match=box):
        exec(code_of(nbformat.read(ROOT / "notebooks/streaming.ipynb", as_version=4))[position].source, names)  # noqa: S102
    assert names["boxes"] == {box: ""}


@classic_and_connect
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


@connect_and_classic
def test_bootstrap_rejects_stale_rows_and_loses_no_change(ran):
    values = "[final, attempts[['appended', 'rejected']].values.tolist(), drawn(figure)]"
    code, (final, attempts, [offsets, counts]) = ran("notebooks/bootstrap.ipynb", values)
    assert has_picture(code[-1])
    assert final == 40 * (100 + 20) - 17
    assert attempts == [[28, 12], [7, 5], [5, 0]]
    ends = [offsets["partition 0"], offsets["partition 1"]]
    assert [sum(each) for each in zip(*ends, strict=True)] == [40, 52, 80, 85, 92, 92, 97]
    assert counts == {"appended rows": [28, 7, 5], "rejected rows": [12, 5, 0]}


@connect_and_classic
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


@connect_and_classic
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
