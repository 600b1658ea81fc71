"""The source archive and the wheel that is built from it, installed where the source tree is not on the path."""

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from spark_cas import __version__
from tests.long import full
from tests.spark.short_runs import conf_folder

TREE = Path(__file__).parents[2]
ROWS = 200_000
NAME = f"spark_cas-{__version__}"
PYTHONS = ("3.11", "3.12", "3.13")
"""The versions of Python that the package names."""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build both as a release does; the wheel is built from the source archive."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(folder), str(TREE)], check=True, timeout=110)
    return folder


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """Install the wheel; its dependencies are in the environment of the tests."""
    folder = tmp_path_factory.mktemp("installed")
    wheel = built / f"{NAME}-py3-none-any.whl"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), str(wheel)]
    subprocess.run(pip, check=True, timeout=110)
    return folder


def run(installed, folder, *command, **variables):
    """Run Python in another folder, with the installed package before the source tree, and return the result."""
    environment = os.environ | {"PYTHONPATH": str(installed)} | variables
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=110,
    )


def test_wheel_has_the_package_and_nothing_else(built):
    with zipfile.ZipFile(built / f"{NAME}-py3-none-any.whl") as wheel:
        names = wheel.namelist()
    assert {name.split("/", 1)[0] for name in names} == {
        "spark_cas",
        "pyspark_conditional_log.py",
        f"{NAME}.dist-info",
    }
    files = {each.relative_to(TREE) for each in (TREE / "spark_cas").rglob("*") if each.is_file()}
    expected = {str(each) for each in files if "__pycache__" not in each.parts}
    assert {name for name in names if name.startswith("spark_cas/")} == expected
    packages = {name.split("/")[1] for name in names if name.startswith("spark_cas/") and name.count("/") > 1}
    assert packages == {"cli", "core", "log", "options", "programs", "spark"}
    assert "spark_cas/py.typed" in names


def test_source_archive_has_what_a_build_and_the_tests_need(built):
    with tarfile.open(built / f"{NAME}.tar.gz") as archive:
        names = {each.removeprefix(f"{NAME}/") for each in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "Makefile", "tests/conftest.py", "jobs/bulk_load.py"} <= names
    assert {
        "examples/key_value_store/pyproject.toml",
        "tools/kafka_broker/__main__.py",
        "tests/support/faults.py",
    } <= names
    assert not [each for each in names if "node_modules" in each or each.startswith((".venv", "build/"))]


def test_installed_package_knows_its_version(installed, tmp_path):
    script = "import spark_cas, importlib.metadata as m; print(spark_cas.__file__, m.version('spark-cas'))"
    assert run(installed, tmp_path, "-c", script).stdout.split() == [
        str(installed / "spark_cas/__init__.py"),
        __version__,
    ]
    assert run(installed, tmp_path, "-m", "spark_cas.cli", "--version").stdout.split() == ["spark-cas", __version__]


def test_metadata_names_pyspark_only_as_an_extra(installed):
    lines = (installed / f"{NAME}.dist-info" / "METADATA").read_text().splitlines()
    pyspark = [line for line in lines if line.startswith("Requires-Dist: pyspark")]
    assert pyspark
    assert all("extra ==" in line for line in pyspark)
    assert "Requires-Python: >=3.11" in lines
    assert any(line.startswith("Author: ") for line in lines)
    assert sorted(line.rpartition(" ")[2] for line in lines if ":: Python :: 3." in line) == [*PYTHONS]


def resolve(built, folder, python, *options):
    """Let pip choose the dependencies of the wheel for a version of Python. Return the version of each."""
    report = folder / "report.json"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--report", str(report)]
    elsewhere = ("--target", str(folder / "unused"), "--only-binary=:all:", "--python-version", python)
    wheel = built / f"{NAME}-py3-none-any.whl"
    subprocess.run([*pip, *elsewhere, *options, f"{wheel}[avro]"], check=True, timeout=110)
    chosen = [each["metadata"] for each in json.loads(report.read_text())["install"]]
    return {canonicalize_name(each["name"]): each["version"] for each in chosen}


@pytest.mark.parametrize("python", [*full(*PYTHONS[:-1]), PYTHONS[-1]])
def test_all_dependencies_exist_for_each_python(built, tmp_path, python):
    result = resolve(built, tmp_path, python)
    assert {"confluent-kafka", "fastavro", "numpy", "obstore", "pandas", "pyarrow", "xxhash"} <= set(result)
    assert not {"pyspark", "pyspark-client"} & set(result)


def test_oldest_dependencies_are_those_of_the_metadata():
    """`make test-oldest` installs the lowest version that the package accepts of each dependency."""
    project = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    required = [*project["dependencies"], *extras["avro"], *extras["metrics"]]
    oldest = [line for line in (TREE / "tests/oldest.txt").read_text().splitlines() if not line.startswith("#")]
    pinned = {each.name: str(each.specifier) for each in map(Requirement, oldest)}
    for each in map(Requirement, required):
        (lowest,) = [bound.version for bound in each.specifier if bound.operator == ">="]
        assert pinned[each.name] in (f"=={lowest}.*", f"=={lowest}"), each.name
    assert set(pinned) == {each.name for each in map(Requirement, required)}


def vendor(file):
    return file.stem.partition("-")[0]


def platforms():
    """Yield each file of conf/platforms with each Python version that its first line names.

    Only the long suite has further Python versions, and a file of a vendor between its oldest and its newest.
    """
    files = sorted((TREE / "conf/platforms").glob("*.txt"))
    assert files
    for file in files:
        (versions,) = re.findall(r"\A# .+: Python (3\.\d+(?:, 3\.\d+)*)\n", file.read_text())
        own = [each for each in files if vendor(each) == vendor(file)]
        for number, python in enumerate(versions.split(", ")):
            marks = pytest.mark.full if number or file not in (own[0], own[-1]) else ()
            yield pytest.param(file, python, id=f"{file.stem}-python-{python}", marks=marks)


@pytest.mark.parametrize(("platform", "python"), [*platforms()])
def test_platform_keeps_its_own_packages(built, tmp_path, platform, python):
    """All dependencies exist for the platform's Python and agree with each package of the file."""
    lines = [line for line in platform.read_text().splitlines() if not line.startswith("#")]
    expected = {canonicalize_name(each.name): each.specifier for each in map(Requirement, lines)}
    result = resolve(built, tmp_path, python, "--constraint", str(platform))
    assert not {"pyspark", "pyspark-client", "databricks-connect", "starlette", "uvicorn", "anyio"} & set(result)
    assert {"numpy", "pandas", "pyarrow"} <= set(expected) <= set(result)
    changed = [name for name, allowed in expected.items() if not allowed.contains(result[name])]
    assert not changed, {name: result[name] for name in changed}


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "line", "header"),
    [
        ("a.csv", "{0},one\n", '"id",n\n'),
        pytest.param("a.json", '{{"id": {0}, "n": "one"}}\n', "", marks=pytest.mark.full),
    ],
)
def test_installed_package_loads_a_file_without_a_traceback(installed, tmp_path, name, line, header):
    """The file has so many rows that a worker still sends some after Spark has read the first one."""
    (tmp_path / name).write_text(header + "".join(line.format(number) for number in range(ROWS)))
    rows = ("--key", "string(id)", "--value", "n", "--partitions", "1", "--job", "load-1")
    command = ("-m", "spark_cas.cli", "load", "--input", name, "--log", "log", *rows)
    ended = run(installed, tmp_path, *command, SPARK_CONF_DIR=conf_folder(tmp_path / "conf"))
    report = json.loads(ended.stdout.splitlines()[-1])
    assert (report["status"], report["rows"]) == ("complete", ROWS)
    assert "Traceback" not in ended.stderr, ended.stderr
