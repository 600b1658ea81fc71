"""A permanent error is raised once and cancels the run. Spark would retry a task that raised it."""

from pathlib import Path

import pytest

from spark_cas import open_log
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.log.load.planning import pin_plan
from tests.faults.checker import files_of, require_complete
from tests.faults.failpoints import Failpoints, Point, chunk
from tests.faults.rig import Driver
from tests.faults.rows import CHUNK, PARTITIONS, make_rows, routed, write_input
from tests.support.writing import append_foreign

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def test_a_conflict_in_every_partition_is_raised_once_and_names_them_all(
    driver: Driver, failpoints: Failpoints, log: Path, tmp_path: Path
):
    with open_log(str(log)) as opened:
        opened.create(PARTITIONS)
        pin_plan(opened, "load", ExpectedOffsets("end"))
        for partition in range(PARTITIONS):
            append_foreign(opened, partition, "foreign")
    before = files_of(log)

    answer = driver.write(write_input(tmp_path / "input", make_rows()), log, job="load")

    assert answer["kind"] == "CONFLICT", answer["error"]
    assert answer["error"].count("[CONFLICT]") == 1
    assert answer["failed_tasks"] == 0
    assert answer["stage_attempts"] == 1
    assert files_of(log) == before
    for partition in range(PARTITIONS):
        assert f"partition {partition}" in answer["error"]


def test_kill_after_cancelling_a_run_keeps_its_error(
    driver: Driver, failpoints: Failpoints, log: Path, tmp_path: Path
):
    """The next attempt reports the error, or reads it from the cancellation. The job can be resumed."""
    rows = make_rows()
    source = write_input(tmp_path / "input", rows)
    failpoints.arm(Point("before", chunk(0, 2 * CHUNK), "kill", once=False))
    assert driver.write(source, log, job="load")["error"] is not None
    first = routed(rows)[0][0]
    changed = [(key, value + b"!") if (key, value) == first else (key, value) for key, value in rows]
    failpoints.arm(Point("linked", "^_log/cancelled/", "kill"))

    answer = driver.write(write_input(tmp_path / "changed", changed), log, job="load")

    assert failpoints.events("kill")[-1].path.startswith("_log/cancelled/")
    assert answer["kind"] == "INPUT_CHANGED", answer["error"]
    assert answer["failed_tasks"] == 1
    assert files_below(log / "_log" / "cancelled") == []
    failpoints.arm()
    assert driver.write(source, log, job="load")["error"] is None
    require_complete(log, "load", routed(rows))


def files_below(folder: Path) -> list[Path]:
    return [each for each in folder.rglob("*") if each.is_file()]
