"""A Python worker is killed with SIGKILL around the put of a chunk, and Spark retries the task."""

from pathlib import Path

import pytest

from tests.faults.checker import files_of, require_complete, require_prefix, require_rows
from tests.faults.failpoints import Failpoints, Point, chunk
from tests.faults.rig import Driver
from tests.faults.rows import CHUNK, make_rows, routed, write_input

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

ROWS = make_rows()


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(
            Point(at, chunk(0, base_offset), "kill"),
            id=f"{at} chunk {base_offset // CHUNK}",
            marks=() if base_offset else pytest.mark.full,
        )
        for at in ("before", "staged", "linked")
        for base_offset in (0, 2 * CHUNK)
    ],
)
def test_each_row_is_there_once_when_a_task_was_killed_at_a_put(
    point: Point, driver: Driver, failpoints: Failpoints, log: Path, tmp_path: Path
):
    source = write_input(tmp_path / "input", ROWS)
    failpoints.arm(point)

    answer = driver.write(source, log, job="load")

    assert answer["error"] is None
    assert answer["failed_tasks"] == len(failpoints.events("kill")) == 1
    require_complete(log, "load", routed(ROWS))


def test_a_load_as_a_whole_is_there_once_when_a_task_was_killed(
    driver: Driver, failpoints: Failpoints, log: Path, tmp_path: Path
):
    source = write_input(tmp_path / "input", ROWS)
    failpoints.arm(Point("linked", chunk(0, 2 * CHUNK), "kill"))

    answer = driver.write(source, log, job="load", atomic="load")

    assert answer["error"] is None
    assert answer["failed_tasks"] == len(failpoints.events("kill")) == 1
    require_complete(log, "load", routed(ROWS))


def test_a_load_as_a_whole_whose_task_is_killed_at_every_attempt_leaves_nothing(
    driver: Driver, failpoints: Failpoints, log: Path, tmp_path: Path
):
    source = write_input(tmp_path / "input", ROWS)
    failpoints.arm(Point("linked", r"^partition=\d+/", "kill", once=False))

    answer = driver.write(source, log, job="load", atomic="load")

    assert "Python worker exited unexpectedly" in answer["error"]
    require_rows(log, {partition: [] for partition in routed(ROWS)})
    failpoints.arm()
    assert driver.write(source, log, job="load", atomic="load")["error"] is None
    require_rows(log, routed(ROWS))


@pytest.mark.full
def test_a_task_killed_at_every_attempt_leaves_a_prefix_that_the_next_run_resumes(
    driver: Driver, failpoints: Failpoints, log: Path, tmp_path: Path
):
    source = write_input(tmp_path / "input", ROWS)
    failpoints.arm(Point("linked", r"^partition=\d+/", "kill", once=False))

    answer = driver.write(source, log, job="load")

    assert "Python worker exited unexpectedly" in answer["error"]
    driver.end()  # another partition's task may still append
    before = files_of(log)
    assert 0 < require_prefix(log, "load", routed(ROWS)) < len(ROWS)
    failpoints.arm()
    assert driver.write(source, log, job="load")["error"] is None
    require_complete(log, "load", routed(ROWS))
    assert before.items() <= files_of(log).items()
