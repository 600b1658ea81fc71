"""The log works without pyspark. An error reports a missing or too old pyspark, and a warning reports a newer one."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from spark_cas.core.pyspark_missing import NEWEST, SUPPORTED

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

NEWER = """
import warnings
import pyspark
pyspark.__version__ = {version!r}
with warnings.catch_warnings(record=True) as shown:
    warnings.simplefilter("always")
    from spark_cas import ConditionalLogSource, route
print(*(each.category.__name__ for each in shown if {version!r} in str(each.message)))
"""


def run(script):
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    return ran.stdout.split()


@pytest.mark.parametrize(("version", "warned"), [("4.0.0", 0), ("4.3.9", 0), ("4.4.0.dev1", 1), ("5.0.0", 1)])
def test_newer_pyspark_is_reported_once(version, warned):
    assert run(NEWER.format(version=version)) == ["UserWarning"] * warned


@pytest.mark.parametrize(("absent", "calls"), [("pyspark", 3), ("pyspark.sql.datasource", 2)])
def test_missing_pyspark_is_named(path, absent, calls):
    assert run(SCRIPT.format(absent=absent, path=path, calls=calls)) == ["SPARK_SETUP"] * calls


def test_supported_versions_are_those_of_the_extra():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    oldest, newest = SUPPORTED.split(" to ")
    major, minor = NEWEST
    assert newest == f"{major}.{minor}"
    assert project["optional-dependencies"]["spark"] == [f"pyspark>={oldest},<{major}.{minor + 1}"]
