"""Lost executors, speculative copies and zombie tasks on a standalone cluster of two workers."""

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_cas import error_from_text, open_log
from tests.faults.checker import files_of, require_complete
from tests.faults.failpoints import Event, Failpoints, Point, chunk, until
from tests.faults.rig import Driver, is_idle
from tests.faults.rows import CHUNK, PARTITIONS, make_rows, routed, write_input
from tests.long import full
from tests.spark_cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(400)]

ROWS = make_rows()
LAST = chunk(0, (len(routed(ROWS)[0]) - 1) // CHUNK * CHUNK)
OTHERS = Point("before", chunk("0000[1-3]", 0), "wait", once=False, name="others")
"""Holds the tasks of the other partitions. Until one of them ends, Spark starts no copy of partition 0's task."""


@pytest.fixture(scope="module")
def cluster(all_failpoints: Failpoints, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("rig") / "cluster", all_failpoints.environment) as started:
        yield started


@pytest.fixture(scope="module")
def driver(
    cluster: Cluster, all_failpoints: Failpoints, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Driver]:
    folder = tmp_path_factory.mktemp("rig") / "drivers" / "one"
    with Driver(folder, all_failpoints, cluster.conf, executors=2) as started:
        yield started


def refused(failpoints: Failpoints) -> list[Event]:
    """Return the puts of chunks whose name already existed."""
    return [event for event in failpoints.events() if event.at == "refused" and event.path.startswith("partition=")]


def refusals(answer: dict[str, Any]) -> list[str]:
    """Return the task failures that have an error of the package. A lost executor may cause other failures."""
    return [text for text in answer["failures"] if error_from_text(text)]


def test_an_executor_killed_while_it_writes_and_holds_map_output_costs_no_row(
    driver: Driver, failpoints: Failpoints, log: Path, tmp_path: Path
):
    source = write_input(tmp_path / "input", ROWS)
    failpoints.arm(Point("linked", chunk(0, CHUNK), "kill_executor"), OTHERS)
    driver.begin(source, log, job="load")
    failpoints.await_event("kill_executor")
    failpoints.release("others")

    answer = driver.answer()

    assert answer["error"] is None
    assert answer["stage_attempts"] > 1  # the executor's map output was lost
    require_complete(log, "load", routed(ROWS))


def test_a_speculative_copy_that_overtakes_its_original_leaves_one_copy_and_no_failure(
    driver: Driver, failpoints: Failpoints, log: Path, tmp_path: Path
):
    source = write_input(tmp_path / "input", ROWS)
    failpoints.arm(
        Point("before", chunk(0, CHUNK), "overtaken"),
        # Spark kills the slower attempt when the other one ends, so the other one waits just before its end.
        Point("before", LAST, "wait", name="copy"),
        OTHERS,
    )
    driver.begin(source, log, job="load")
    failpoints.await_event("overtaken")
    failpoints.release("others")
    until(lambda: refused(failpoints), "the original to be refused")
    failpoints.release("copy")

    answer = driver.answer()

    assert answer["error"] is None
    assert refusals(answer) == []
    assert {event.pid for event in refused(failpoints)} == {event.pid for event in failpoints.events("overtaken")}
    require_complete(log, "load", routed(ROWS))


@pytest.mark.parametrize("at", ["before", *full("staged", "linked")])
def test_worker_that_wakes_after_its_copy_shows_nothing(
    at: str, driver: Driver, failpoints: Failpoints, log: Path, tmp_path: Path
):
    source = write_input(tmp_path / "input", ROWS)
    failpoints.arm(
        Point(at, chunk(0, CHUNK), "stop"),
        Point("linked", LAST, "wait", name="copy"),
        OTHERS,
    )
    driver.begin(source, log, job="load")
    stopped = failpoints.await_event("stop")
    failpoints.release("others")
    until(lambda: any(re.search(LAST, event.path) for event in failpoints.events("wait")), "the copy's last put")
    before = files_of(log)

    os.kill(stopped.pid, signal.SIGCONT)

    until(lambda: is_idle(stopped.pid), "the stopped worker to be idle")
    # A worker that has linked its chunk learns from the ledger that another attempt overtook it.
    assert [event.pid for event in refused(failpoints)] == ([] if at == "linked" else [stopped.pid])
    assert files_of(log) == before
    failpoints.release("copy")
    answer = driver.answer()
    assert answer["error"] is None
    assert refusals(answer) == []
    assert files_of(log) == before
    require_complete(log, "load", routed(ROWS))


@pytest.mark.full
def test_executors_that_outlive_their_driver_do_not_harm_the_job_that_is_run_again(
    driver: Driver, failpoints: Failpoints, log: Path, tmp_path: Path
):
    source = write_input(tmp_path / "input", ROWS)
    failpoints.arm(Point("before", chunk(0, CHUNK), "stop"))
    driver.begin(source, log, job="load")
    stopped = failpoints.await_event("stop")

    driver.kill()

    assert driver.write(source, log, job="load")["error"] is None
    before = files_of(log)
    with contextlib.suppress(ProcessLookupError):  # unless it ended with its executor
        os.kill(stopped.pid, signal.SIGCONT)
    until(lambda: is_idle(stopped.pid), "the stopped worker to be idle")
    assert files_of(log) == before
    require_complete(log, "load", routed(ROWS))


@pytest.mark.full
@pytest.mark.parametrize("on_the_workers", ["nothing", "another log"])
def test_a_local_path_that_workers_do_not_share_is_refused(
    on_the_workers: str, cluster: Cluster, driver: Driver, failpoints: Failpoints, tmp_path: Path
):
    # Each process resolves /proc/self/cwd to its own working directory, as each machine has its own disk. An executor
    # runs in <worker's folder>/<application>/<number>.
    name = on_the_workers.replace(" ", "-")
    log = Path("/proc/self/cwd/../..") / name
    mine = driver.folder / "../.." / name
    if on_the_workers == "another log":
        for folder in cluster.worker_folders:
            with open_log(str(folder / name)) as opened:
                opened.create(PARTITIONS)

    answer = driver.write(write_input(tmp_path / "input", ROWS), log, job="load")

    assert answer["kind"] == "LOG_NOT_SHARED", answer["error"]
    assert refusals(answer) == []
    assert files_of(mine) == {}
    for folder in cluster.worker_folders:
        assert files_of(folder / name) == {}
        assert (folder / name).exists() == (on_the_workers == "another log")
