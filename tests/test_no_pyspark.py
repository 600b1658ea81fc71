"""Without pyspark, or with one that is too old, the log works, and the error names the missing package."""

import subprocess
import sys

import pytest

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


@pytest.mark.parametrize(("absent", "calls"), [("pyspark", 3), ("pyspark.sql.datasource", 2)])
def test_missing_pyspark_is_named(path, absent, calls):
    script = SCRIPT.format(absent=absent, path=path, calls=calls)
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    assert ran.stdout.split() == ["SPARK_SETUP"] * calls
