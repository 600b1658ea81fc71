"""Loads and a stream by Spark under chaos, for a minute or more per seed; and the check of a stream."""

import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.chaos.__main__ import main
from tests.chaos.spark.executors import below, process_faults
from tests.chaos.spark.judging import STREAMED, STREAMER, judge, streamed
from tests.chaos.spark.places import troubled
from tests.chaos.spark.session import writing
from tests.chaos.world import World
from tests.history.operations import OK, Operation, read_history
from tests.history.records import Found, Record
from tests.long import full
from tools.kafka_broker.waiting import wait_until

pytestmark = pytest.mark.timeout(600)

WHOLE = {"compare": "partition", "chunk_records": 2}


def run(backend, seed, seconds, *, folder):
    """Run chaos from the command line; require that all properties hold and each type of client made progress."""
    code = main(["--backend", backend, "--seed", str(seed), "--seconds", str(seconds), "--into", str(folder)])
    [left] = folder.iterdir()
    assert code == 0, (left / "violations.txt").read_text()
    history = read_history(left / "history")
    acknowledged = {(each.process, each.name) for each in history if each.outcome == OK}
    assert {("loader", "append"), (STREAMER, "append"), ("w1", "append"), ("r1", "read")} <= acknowledged
    struck = {
        each.arguments["kind"].split("-")[-1] for each in history if each.name == "fault" and each.outcome == OK
    }
    assert struck & {"driver", "executor", "worker"}
    page = (left / "timeline.html").read_text()
    assert all(f">{name}</text>" in page for name in ("loader", STREAMER, "w1", "r1"))


@pytest.mark.spark
@pytest.mark.cluster
@pytest.mark.parametrize("chosen", full((1, 60), (2, 60), (3, 60)))
def test_spark_over_a_directory_keeps_its_promises(chosen, tmp_path):
    run("spark-directory", *chosen, folder=tmp_path)


@pytest.mark.spark
@pytest.mark.cluster
@pytest.mark.kafka
@pytest.mark.parametrize("chosen", full((1, 90), (2, 90)))
def test_spark_over_three_brokers_keeps_its_promises(chosen, tmp_path):
    run("spark-kafka", *chosen, folder=tmp_path)


def test_lost_or_reordered_rows_of_a_stream_are_detected():
    files = [
        Operation(
            STREAMER, "append", {"job": job, "records": {"0": rows}, "expected": {"0": None}, **WHOLE}, at, at + 5, OK
        )
        for at, (job, rows) in enumerate({"s-00": [["k", "a"], ["k", "b"]], "s-01": [["k", "c"]]}.items())
    ]

    def numbers(text):
        return {
            each.number for each in streamed(files, {0: [Found(at, Record("k", it)) for at, it in enumerate(text)]})
        }

    assert numbers("abc") == numbers("axbc") == set()
    assert numbers("ab") == numbers("bac") == numbers("cab") == {STREAMED}
    assert [each.number for each in judge(files, {0: []})] == [3, 3, STREAMED]


CHAIN = """
import os, subprocess, sys, time
first, *rest = [*os.environ["CHAIN"].split(), ""]
if first:
    child = subprocess.Popen([sys.executable, __file__, first], env=os.environ | {"CHAIN": " ".join(rest)})
time.sleep(60)
"""
"""A process that starts another, and so on. Each has its name as an argument."""
EXECUTOR, DAEMON = "CoarseGrainedExecutorBackend", "pyspark.daemon"


def begun(fault, chance):
    """Return the target of a fault that finds one, and the function that ends it."""
    found = fault.begin(chance, 1.0)
    assert found is not None
    return found


def state_of(process):
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.timeout(60)
def test_only_busy_descendants_of_a_run_are_struck(tmp_path):
    (tmp_path / "chain.py").write_text(CHAIN)
    chains = [[EXECUTOR, DAEMON, DAEMON], [EXECUTOR], [EXECUTOR, DAEMON]]
    roots = [
        subprocess.Popen([sys.executable, tmp_path / "chain.py"], env=os.environ | {"CHAIN": " ".join(each)})
        for each in chains
    ]
    everybody = []
    try:
        wait_until(lambda: len(below(each.pid for each in roots)) == 6, 30, lambda: "the processes did not start")
        everybody = below(each.pid for each in roots)
        executor, daemon, worker, *_ = below([roots[0].pid])
        faults = process_faults(lambda: [each.pid for each in roots[:2]])
        chance = random.Random(1)
        target, go_on = begun(faults["freeze-executor"], chance)
        assert target == str(executor.pid)
        wait_until(lambda: state_of(executor) == "T", 10, lambda: "not stopped")
        go_on()
        assert begun(faults["kill-python-worker"], chance)[0] == str(worker.pid)
        wait_until(lambda: state_of(worker) == "Z", 10, lambda: "not killed")
        assert begun(faults["kill-executor"], chance)[0] == str(executor.pid)
        wait_until(lambda: state_of(executor) == "Z", 10, lambda: "not killed")
        assert faults["kill-executor"].begin(chance, 1.0) is None
        assert state_of(daemon) == "S"
    finally:
        for each in everybody:
            with suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
        for root in roots:
            root.kill()
            root.wait(10)


def test_client_id_names_the_driver(tmp_path):
    assert writing(World(tmp_path, "127.0.0.1:1", "flights"), "loader", "loader-1")["kafka.client.id"] == "loader"


def test_processes_of_spark_have_troubled_stores(tmp_path):
    code = f"from spark_cas import open_log; print(open_log('{tmp_path}/log')._store._store)"
    environment = os.environ | troubled(tmp_path)
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "TroubledStore" in told.stdout
