"""Sessions of programs that start their own, each in its own process."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
STOPS_WHILE_WORKERS_STAND_STILL = """
import os, signal, threading
from contextlib import suppress
from spark_cas.programs import program

def send(signals):
    for worker in workers:
        with suppress(ProcessLookupError):
            os.killpg(worker, signals)

def is_there(worker):
    with suppress(ProcessLookupError):
        os.killpg(worker, 0)
        return True
    return False

spark = program.local_session("session", show_log=False)
spark.sparkContext.parallelize(range(2), 2).map(lambda number: number).collect()
children = spark.sparkContext._jvm.java.lang.ProcessHandle.current().children().toArray()
workers = [child.pid() for child in children if is_there(child.pid())]
send(signal.SIGSTOP)
resume, is_alive = threading.Timer(1, send, [signal.SIGCONT]), program._is_alive

def is_alive_after_resume(group):
    if not resume.ident:
        resume.start()
    return is_alive(group)

program._is_alive = is_alive_after_resume
program.stop_session(spark)
print(len(workers), sum(map(is_there, workers)))
send(signal.SIGKILL)
"""

FAILS_IN_SQL = """
import sys
from contextlib import suppress
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf
from spark_cas.programs import program

spark = program.local_session("session", show_log="log" in sys.argv)
with suppress(PySparkException):
    spark.range(1).selectExpr("absent + 1")
with suppress(PySparkException):
    spark.range(1).select(sf.col("absent")).collect()
program.stop_session(spark)
"""


@pytest.mark.parametrize("show_log", [False, True])
def test_context_of_failed_query_is_shown_with_the_log_only(show_log):
    ran = subprocess.run(
        [sys.executable, "-c", FAILS_IN_SQL, *(["log"] if show_log else [])],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ("UNRESOLVED_COLUMN" in ran.stderr) == show_log, ran.stderr


def test_a_session_that_is_stopped_has_no_workers_that_might_still_append():
    """Spark only requests that the workers end. A count of rows right after that could be too low."""
    ran = subprocess.run(
        [sys.executable, "-c", STOPS_WHILE_WORKERS_STAND_STILL],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    workers, left = map(int, ran.stdout.split())
    assert workers >= 1
    assert left == 0
