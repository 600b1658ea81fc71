"""Sessions of programs that start their own, each in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
STOPS_WHILE_WORKERS_STAND_STILL = """
import os, signal, threading
from spark_cas.programs.session import local_session, stop_session

spark = local_session("session", show_log=False)
spark.sparkContext.parallelize(range(2), 2).map(lambda number: number).collect()
children = spark.sparkContext._jvm.java.lang.ProcessHandle.current().children().toArray()
workers = [child.pid() for child in children]
for worker in workers:
    os.killpg(worker, signal.SIGSTOP)
threading.Timer(2, lambda: [os.killpg(worker, signal.SIGCONT) for worker in workers]).start()
stop_session(spark)
print(len(workers), sum(os.path.exists(f"/proc/{worker}") for worker in workers))
"""


def test_a_session_that_is_stopped_has_no_workers_that_might_still_append():
    """Spark only tells them to end: who counts rows right after it would count too few."""
    ran = subprocess.run(
        [sys.executable, "-c", STOPS_WHILE_WORKERS_STAND_STILL], cwd=ROOT, capture_output=True, text=True, check=True
    )
    workers, left = map(int, ran.stdout.split())
    assert workers >= 1
    assert left == 0
