"""A job is rerun with other rows than before: the rerun is rejected, and nothing is appended."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.checker import files_of, require_complete, require_prefix
from tests.faults.failpoints import Failpoints, Point, chunk
from tests.faults.rig import Driver
from tests.faults.rows import CHUNK, Row, make_rows, routed, write_input
from tests.long import full

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

ROWS = make_rows(5 * CHUNK)
FIRST = routed(ROWS, 1)[0][0]


def change(rows: list[Row]) -> list[Row]:
    return [(key, value + b"!") if (key, value) == FIRST else (key, value) for key, value in rows]


def drop(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row != FIRST]


def drop_most(rows: list[Row]) -> list[Row]:
    return sorted(rows)[:CHUNK]


@pytest.fixture
def interrupted(driver: Driver, failpoints: Failpoints, log: Path, tmp_path: Path) -> str:
    """Kill a job at every attempt, after two chunks in its only partition. Return its input."""
    source = write_input(tmp_path / "input", ROWS)
    failpoints.arm(Point("before", chunk(0, 2 * CHUNK), "kill", once=False))
    assert driver.write(source, log, job="load", partitions="1")["error"] is not None
    assert require_prefix(log, "load", routed(ROWS, 1)) == 2 * CHUNK
    failpoints.arm()
    return source


@pytest.mark.parametrize("edit", [change, *full(drop, drop_most)])
def test_other_rows_on_resume_are_refused(
    edit: Callable[[list[Row]], list[Row]], interrupted: str, driver: Driver, log: Path, tmp_path: Path
):
    before = files_of(log)

    answer = driver.write(write_input(tmp_path / "edited", edit(ROWS)), log, job="load", partitions="1")

    assert answer["kind"] == "INPUT_CHANGED", answer["error"]
    assert answer["failed_tasks"] == 0
    assert files_of(log) == before
    assert driver.write(interrupted, log, job="load", partitions="1")["error"] is None
    require_complete(log, "load", routed(ROWS, 1))


@pytest.mark.full
def test_the_same_rows_in_another_order_on_resume_are_refused(interrupted: str, driver: Driver, log: Path):
    before = files_of(log)

    answer = driver.write(interrupted, log, job="load", partitions="1", order_by=("value",))

    assert answer["kind"] == "INPUT_CHANGED", answer["error"]
    assert files_of(log) == before


def test_an_order_that_differs_between_attempts_of_a_task_is_refused(
    driver: Driver, failpoints: Failpoints, log: Path, tmp_path: Path
):
    source = write_input(tmp_path / "input", ROWS)
    failpoints.arm(Point("before", chunk(0, 2 * CHUNK), "kill"))

    answer = driver.write(source, log, job="load", partitions="1", restless=True)

    assert answer["kind"] == "INPUT_CHANGED", answer["error"]
    assert answer["failed_tasks"] == 1  # only the killed attempt: Spark does not retry the rejection
    assert require_prefix(log, "load", routed(ROWS, 1)) == 2 * CHUNK


def test_other_rows_for_a_complete_job_are_refused(driver: Driver, failpoints: Failpoints, log: Path, tmp_path: Path):
    assert driver.write(write_input(tmp_path / "input", ROWS), log, job="load")["error"] is None
    before = files_of(log)

    answer = driver.write(write_input(tmp_path / "more", [*ROWS, (b"new", b"row")]), log, job="load")

    assert answer["kind"] == "INPUT_CHANGED", answer["error"]
    assert answer["failed_tasks"] == 0
    assert files_of(log) == before
    require_complete(log, "load", routed(ROWS))
