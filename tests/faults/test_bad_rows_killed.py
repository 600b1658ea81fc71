"""A driver is killed with SIGKILL during a bulk load whose bad rows are appended to a log of their own."""

from pathlib import Path

import pytest

from spark_cas import open_log
from tests.faults.failpoints import Failpoints, Point
from tests.faults.rig import Driver
from tests.support.writing import values_in

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(400)]


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(
            Point("before", r"^_log/jobs/load\.bad-rows/complete\.json$", "wait"), id="bad rows not complete"
        ),
        pytest.param(Point("before", r"^_log/jobs/load/plan\.json$", "wait"), id="load not planned"),
        pytest.param(Point("before", r"^_log/jobs/load/complete\.json$", "wait"), id="load not complete"),
    ],
)
def test_each_bad_row_is_appended_once(
    point: Point, driver: Driver, failpoints: Failpoints, log: Path, tmp_path: Path
):
    file, letters = tmp_path / "a.json", tmp_path / "bad"
    file.write_text("\n".join([*(f'{{"id": {row}}}' for row in range(20)), *(f"bad-{row}" for row in range(10))]))
    with open_log(str(letters)) as opened:
        opened.create(1)
    command = ("--input", str(file), "--value-json", "--partitions", "1", "--job", "load", "--bad-rows", str(letters))
    failpoints.arm(point)
    driver.begin_files(log, *command)
    failpoints.await_event("wait")

    driver.kill()

    with open_log(str(letters)) as opened:
        bad = values_in(opened, 0)
    assert bad == [f"bad-{row}" for row in range(10)]
    failpoints.arm()
    driver.begin_files(log, *command)
    assert driver.answer()["error"] is None
    with open_log(str(letters)) as opened:
        assert values_in(opened, 0) == bad
    with open_log(str(log)) as opened:
        assert values_in(opened, 0) == [f'{{"id": {row}}}' for row in range(20)]
