"""Sessions of programs that start their own, each in its own process."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
FAILS_IN_SQL = """
from contextlib import suppress
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf
from spark_cas.programs import program

spark = program.local_session("session", show_log={show_log})
with suppress(PySparkException):
    spark.range(1).selectExpr("absent + 1")
with suppress(PySparkException):
    spark.range(1).select(sf.col("absent")).collect()
"""

STOPS_WHILE_WORKERS_STAND_STILL = """
import os, signal, threading

def send(signals):
    for worker in workers:
        with suppress(ProcessLookupError):
            os.killpg(worker, signals)

def is_there(worker):
    with suppress(ProcessLookupError):
        os.killpg(worker, 0)
        return True
    return False

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


def run(program):
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=False, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    return ended


@pytest.mark.full
def test_context_of_failed_query_is_shown_with_the_log():
    assert "UNRESOLVED_COLUMN" in run(FAILS_IN_SQL.format(show_log=True) + "program.stop_session(spark)").stderr


def test_a_session_that_is_stopped_has_no_workers_that_might_still_append():
    """Spark only requests that the workers end. A count of rows right after that could be too low.

    Without the log, the context of a failed query is not shown.
    """
    ended = run(FAILS_IN_SQL.format(show_log=False) + STOPS_WHILE_WORKERS_STAND_STILL)
    workers, left = map(int, ended.stdout.split())
    assert workers >= 1
    assert left == 0
    assert "UNRESOLVED_COLUMN" not in ended.stderr
