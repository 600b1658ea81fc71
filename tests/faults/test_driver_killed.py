"""A driver, Python and JVM, is killed by signal 9; the same command is run again."""

from pathlib import Path

import pytest

from tests.faults.checker import files_of, require_complete
from tests.faults.failpoints import Failpoints, Point, chunk
from tests.faults.rig import Driver
from tests.faults.rows import CHUNK, make_rows, routed, write_input

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

ROWS = make_rows()
COMPLETE = r"^_log/jobs/load/complete\.json$"
PLAN = r"^_log/jobs/load/plan\.json$"


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(Point("linked", PLAN, "wait"), id="when the plan is recorded"),
        pytest.param(Point("staged", chunk(0, 2 * CHUNK), "wait"), id="in the middle of the chunks"),
        pytest.param(Point("before", COMPLETE, "wait"), id="between the tasks and commit"),
        pytest.param(Point("linked", COMPLETE, "wait"), id="after commit"),
    ],
)
def test_the_same_command_ends_with_each_row_once_after_its_driver_was_killed(
    point: Point, driver: Driver, failpoints: Failpoints, log: Path, tmp_path: Path
):
    source = write_input(tmp_path / "input", ROWS)
    failpoints.arm(point)
    driver.begin(source, log, job="load")
    failpoints.await_event("wait")

    driver.kill()

    before = files_of(log)
    failpoints.arm()
    assert driver.write(source, log, job="load")["error"] is None
    require_complete(log, "load", routed(ROWS))
    assert before.items() <= files_of(log).items()


def test_a_job_that_is_complete_appends_nothing_when_it_is_run_again(
    driver: Driver, failpoints: Failpoints, log: Path, tmp_path: Path
):
    source = write_input(tmp_path / "input", ROWS)
    assert driver.write(source, log, job="load")["error"] is None
    require_complete(log, "load", routed(ROWS))
    before = files_of(log)

    answer = driver.write(source, log, job="load")

    assert answer["error"] is None
    assert files_of(log) == before
    require_complete(log, "load", routed(ROWS))
