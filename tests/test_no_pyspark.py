"""The log works without pyspark. An error reports a missing or too old pyspark, and a warning reports a newer one."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from spark_cas.spark.supported import NEWEST, OLDEST, SUPPORTED

ROOT = Path(__file__).parents[1]
SCRIPT = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {absent!r} or name.startswith({absent!r} + "."):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
import spark_cas
from spark_cas import open_log
from spark_cas.core.errors import SparkSetupError
from spark_cas.programs.program import local_session

with open_log({path!r}) as log:
    log.create(1)
calls = [lambda: spark_cas.route, lambda: spark_cas.ConditionalLogSource, lambda: local_session("x", show_log=False)]
for call in calls[:{calls}]:
    try:
        call()
    except SparkSetupError as error:
        print(error.kind)
"""

OLD = """
import spark_cas
from spark_cas.core.errors import SparkSetupError
from jobs import bootstrap_state, stream_copy, verify_log
from spark_cas.programs import bulk_load
from spark_cas.programs.program import submitted_session

calls = [lambda name=name: getattr(spark_cas, name) for name in ("route", "bootstrap", "ConditionalLogSource")]
for call in [*calls, lambda: __import__("spark_cas.metrics"), lambda: __import__("spark_cas.schema_registry")]:
    try:
        call()
    except SparkSetupError as error:
        print(error)
rows = "--log log --input a.csv --key id --value n"
for program, command in {
    bootstrap_state: "--log log --output state",
    bulk_load: f"{rows} --partitions 1 --job load",
    stream_copy: "--from log --to copy --checkpoint checkpoint --job copy",
    verify_log: rows,
}.items():
    program.main(command.split(), program.__name__, lambda shown: submitted_session("test", show_log=shown))
"""

NEWER = """
import warnings
import pyspark
pyspark.__version__ = {version!r}
with warnings.catch_warnings(record=True) as shown:
    warnings.simplefilter("always")
    from spark_cas import ConditionalLogSource, route
print(*(each.category.__name__ for each in shown if {version!r} in str(each.message)))
"""


def run(script, **environment):
    command = [sys.executable, "-c", script]
    environment = os.environ | environment
    ran = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=60)
    return ran.stdout


@pytest.mark.parametrize(("version", "warned"), [("4.0.0", 0), ("4.3.9", 0), ("4.4.0.dev1", 1), ("5.0.0", 1)])
def test_newer_pyspark_is_reported_once(version, warned):
    assert run(NEWER.format(version=version)).split() == ["UserWarning"] * warned


@pytest.mark.parametrize(("absent", "calls"), [("pyspark", 3), ("pyspark.sql.datasource", 2)])
def test_missing_pyspark_is_named(path, absent, calls):
    assert run(SCRIPT.format(absent=absent, path=path, calls=calls)).split() == ["SPARK_SETUP"] * calls


@pytest.mark.parametrize("version", ["3.5.2", "3.4.0.dev0"])
def test_old_pyspark_is_named_before_anything_else_fails(tmp_path, version):
    """This pyspark has only a version. Each line is an error of a function or the result of a program."""
    package = tmp_path / "pyspark" / "__init__.py"
    package.parent.mkdir()
    package.write_text(f"__version__ = {version!r}")
    lines = run(OLD, PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)])).splitlines()
    assert len(lines) == 5 + 4
    for line in lines:
        assert "SPARK_SETUP" in line
        assert f"pyspark {version} in {package.parent}, " in line
        assert f" {SUPPORTED}" in line
        assert "pip install 'spark-cas[spark]'" in line


def test_supported_versions_are_those_of_the_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (oldest, first), (newest, last) = OLDEST, NEWEST
    assert f"{oldest}.{first} to {newest}.{last}" == SUPPORTED
    assert project["optional-dependencies"]["spark"] == [f"pyspark>={oldest}.{first},<{newest}.{last + 1}"]
