"""The messages that a user sees if Spark is not set up for this package. Each test starts a local driver."""

import os
import subprocess
import sys

import pytest

from tests.conftest import QUIET, ROOT
from tests.spark.short_runs import ARGUMENTS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from spark_cas import bootstrap, route
spark = SparkSession.builder.master("local[1]").getOrCreate()
rows = spark.createDataFrame([("N1", "x")], "key STRING, value STRING")
for call in (lambda: route(rows, {"path": sys.argv[1], "partitions": 1, "job": "load"}),
             lambda: bootstrap(spark, sys.argv[1])):
    try:
        call()
    except Exception as error:
        print(type(error).__name__, error)
"""


def told_by_program(tmp_path, environment, **settings):
    """Run the program in an environment, with these variables added. Return the lines that it prints."""
    quiet = f"--driver-java-options -Dlog4j2.configurationFile=file:{QUIET} {' '.join(ARGUMENTS)} pyspark-shell"
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "flights")],
        env={**environment, "PYSPARK_SUBMIT_ARGS": quiet, "SPARK_LOCAL_IP": "127.0.0.1", **settings},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    told = ran.stdout.splitlines()
    assert told, ran.stderr
    return told


@pytest.mark.full
def test_another_python_of_workers_is_reported_in_one_sentence(tmp_path):
    workers = tmp_path / "python3"
    workers.write_text(f'#!/bin/sh\nexec "{sys._base_executable}" "$@"\n')  # type: ignore[attr-defined]
    workers.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    told = told_by_program(tmp_path, kept, PYTHONPATH=str(ROOT), PATH=path)
    assert len(told) == 2, told
    for line in told:
        assert line.startswith("SparkSetupError [SPARK_SETUP] the Python that Spark runs its workers with")
        assert "os.environ['PYSPARK_PYTHON'] = sys.executable" in line


ENDED_ONCE = """
import os, sys
if "pyspark.sql.worker.lookup_data_sources" in sys.orig_argv:
    try:
        os.close(os.open({marker!r}, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        pass
    else:
        os._exit(1)
"""


def test_worker_that_ends_during_source_lookup_does_not_fail_the_log(tmp_path):
    """Spark 4.2 searches for data sources only once, and continues without those that it did not find."""
    marker = tmp_path / "ended"
    (tmp_path / "sitecustomize.py").write_text(ENDED_ONCE.format(marker=str(marker)))
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    (told,) = told_by_program(tmp_path, os.environ, PYTHONPATH=path, PYSPARK_PYTHON=sys.executable)
    assert told.startswith("LogNotFoundError"), "nothing was written, so there is nothing to bootstrap from"
    assert marker.exists()
