"""Two drivers write to one log at the same time, one after the other or without a valid lock."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_cas import open_log
from spark_cas.core.offsets import OffsetRange
from spark_cas.log.load.locking import abort_job
from tests.faults.checker import Held, recorded_prefix, require, require_complete, require_rows
from tests.faults.failpoints import Event, Failpoints, Point, chunk, until
from tests.faults.rig import Driver
from tests.faults.rows import CHUNK, PARTITIONS, make_rows, routed, write_input

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

START = '{"0": 0, "1": 0, "2": 0, "3": 0}'
BOTH_AT_THE_FIRST_CHUNK = Point("staged", chunk(r"\d+", 0), "meet", once=False)
"""Each partition's first chunk is linked only after the tasks of both drivers have staged theirs."""
BOTH_IN_THE_FIRST_TASKS = Point("staged", chunk(r"0000[01]", 0), "meet", once=False)
"""The same for the two partitions whose tasks run first. Later tasks of a rejected run may append nothing."""


@pytest.fixture(scope="module")
def rival(all_failpoints: Failpoints, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with Driver(tmp_path_factory.mktemp("rig") / "rival", all_failpoints) as started:
        yield started


def test_of_two_jobs_with_the_same_expected_offset_one_wins_each_partition(
    driver: Driver, rival: Driver, failpoints: Failpoints, log: Path, tmp_path: Path
):
    rows = {name: make_rows(tag=name) for name in ("mine", "yours")}
    sources = {name: write_input(tmp_path / name, found) for name, found in rows.items()}
    failpoints.arm(BOTH_IN_THE_FIRST_TASKS)

    driver.begin(sources["mine"], log, job="mine", expectedOffsets=START)
    until(lambda: any(_staged_a_chunk(event) for event in failpoints.events()), "the first chunk of the first")
    # Revoke the lock of the running load, so that only the appends decide.
    with open_log(str(log)) as opened:
        abort_job(opened, "mine")
    rival.begin(sources["yours"], log, job="yours", expectedOffsets=START)
    answers = {"mine": driver.answer(), "yours": rival.answer()}

    winners = {partition: _job_of_first_row(log, partition) for partition in range(PARTITIONS)}
    assert winners[0]
    assert winners[1]
    # A rejected run stops its other tasks, so it leaves a prefix where it won.
    held = {
        each: [] if job is None else [recorded_prefix(log, each, job, routed(rows[job])[each])]
        for each, job in winners.items()
    }
    all_won = [job for job in rows if set(winners.values()) == {job}]
    require(log, held, completed=all_won)
    assert not all_won or all(found.complete for jobs in held.values() for found in jobs)
    refused = {event.path for event in failpoints.events() if event.at == "refused"}
    first_chunks = {f"partition={partition:05d}/{0:020d}.parquet" for partition in range(PARTITIONS)}
    assert refused & first_chunks, "the other tasks of a rejected run may stop before they try"
    for job, answer in answers.items():
        assert answer["kind"] == (None if job in all_won else "CONFLICT"), answer["error"]
        assert answer["failed_tasks"] == 0


def test_one_of_two_atomic_loads_without_locks_is_visible(
    driver: Driver, rival: Driver, failpoints: Failpoints, log: Path, tmp_path: Path
):
    rows = {name: make_rows(tag=name) for name in ("mine", "yours")}
    sources = {name: write_input(tmp_path / name, found) for name, found in rows.items()}
    failpoints.arm(Point("staged", chunk(0, 2 * CHUNK), "wait"))

    driver.begin(sources["mine"], log, job="mine", expectedOffsets=START, atomic="load")
    failpoints.await_event("wait")
    with open_log(str(log)) as opened:
        abort_job(opened, "mine")
    failpoints.arm()
    answer = rival.write(sources["yours"], log, job="yours", expectedOffsets=START, atomic="load")
    failpoints.release()

    assert answer["error"] is None
    assert driver.answer()["error"] is not None
    require_rows(log, routed(rows["yours"]))


def test_of_two_loads_at_once_the_second_waits_and_both_are_complete(
    driver: Driver, rival: Driver, failpoints: Failpoints, log: Path, tmp_path: Path
):
    rows = {name: make_rows(tag=name) for name in ("mine", "yours")}
    sources = {name: write_input(tmp_path / name, found) for name, found in rows.items()}
    failpoints.arm()

    driver.begin(sources["mine"], log, job="mine")
    rival.begin(sources["yours"], log, job="yours")
    answers = [driver.answer(), rival.answer()]

    assert [answer["error"] for answer in answers] == [None, None]
    first = _job_of_first_row(log, 0)
    assert first is not None
    order = [first, *(name for name in rows if name != first)]
    held = {each: [Held(job, routed(rows[job])[each]) for job in order] for each in range(PARTITIONS)}
    require(log, held, completed=order)


def test_one_job_run_by_two_drivers_at_once_appends_each_row_once(
    driver: Driver, rival: Driver, failpoints: Failpoints, log: Path, tmp_path: Path
):
    rows = make_rows()
    source = write_input(tmp_path / "input", rows)
    failpoints.arm(BOTH_AT_THE_FIRST_CHUNK)

    driver.begin(source, log, job="load")
    rival.begin(source, log, job="load")
    answers = [driver.answer(), rival.answer()]

    assert [answer["error"] for answer in answers] == [None, None]
    require_complete(log, "load", routed(rows))
    assert any(event.at == "refused" for event in failpoints.events())


def _staged_a_chunk(event: Event) -> bool:
    return event.at == "staged" and event.path.startswith("partition=")


def _job_of_first_row(log: Path, partition: int) -> str | None:
    """Return the job of a partition's first row; None if it has no row."""
    with open_log(str(log)) as opened:
        if opened.bounds(partition).end_offset == 0:
            return None
        _, records = next(opened.read(partition, OffsetRange(0, 1)))
        return records.column("value")[0].as_py().decode().partition("-")[0]
