"""Two drivers write to one log at the same time."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.checker import Held, require, require_complete
from tests.faults.failpoints import Failpoints, Point, chunk
from tests.faults.rig import Driver
from tests.faults.rows import PARTITIONS, make_rows, routed, write_input

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

START = '{"0": 0, "1": 0, "2": 0, "3": 0}'
BOTH_AT_THE_FIRST_CHUNK = Point("staged", chunk(r"\d+", 0), "meet", once=False)
"""Each partition's first chunk is linked only when both drivers' tasks have staged theirs."""


@pytest.fixture(scope="module")
def rival(all_failpoints: Failpoints, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with Driver(tmp_path_factory.mktemp("rig") / "rival", all_failpoints) as started:
        yield started


def test_of_two_jobs_with_the_same_expected_offset_one_wins_each_partition(
    driver: Driver, rival: Driver, failpoints: Failpoints, log: Path, tmp_path: Path
):
    rows = {name: make_rows(tag=name) for name in ("mine", "yours")}
    sources = {name: write_input(tmp_path / name, found) for name, found in rows.items()}
    failpoints.arm(BOTH_AT_THE_FIRST_CHUNK)

    driver.begin(sources["mine"], log, job="mine", expectedOffsets=START)
    rival.begin(sources["yours"], log, job="yours", expectedOffsets=START)
    answers = {"mine": driver.answer(), "yours": rival.answer()}

    winners = {partition: _job_of_first_row(log, partition) for partition in range(PARTITIONS)}
    held = {partition: [Held(job, routed(rows[job])[partition])] for partition, job in winners.items()}
    all_won = [job for job in rows if set(winners.values()) == {job}]
    require(log, held, completed=all_won)
    assert {event.path for event in failpoints.events() if event.at == "refused"}.issuperset(
        f"partition={partition:05d}/{0:020d}.parquet" for partition in range(PARTITIONS)
    )
    for job, answer in answers.items():
        assert answer["kind"] == (None if job in all_won else "CONFLICT"), answer["error"]
        assert answer["failed_tasks"] == 0


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


def _job_of_first_row(log: Path, partition: int) -> str:
    from spark_cas import open_log
    from spark_cas.core.offsets import OffsetRange

    with open_log(str(log)) as opened:
        _, records = next(opened.read(partition, OffsetRange(0, 1)))
        return records.column("value")[0].as_py().decode().partition("-")[0]
