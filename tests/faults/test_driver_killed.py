"""A driver (Python and JVM) is killed with SIGKILL, and the same command is run again."""

import json
from pathlib import Path

import pytest

from spark_cas import open_log
from tests.faults.checker import Held, files_of, require, require_complete, require_rows
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
        pytest.param(Point("linked", PLAN, "wait"), id="when the plan is recorded", marks=pytest.mark.full),
        pytest.param(Point("staged", chunk(0, 2 * CHUNK), "wait"), id="in the middle of the chunks"),
        pytest.param(Point("before", COMPLETE, "wait"), id="between the tasks and commit", marks=pytest.mark.full),
        pytest.param(Point("linked", COMPLETE, "wait"), id="after commit", marks=pytest.mark.full),
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


@pytest.mark.full
def test_another_load_does_not_wait_for_a_driver_that_was_killed(
    driver: Driver, failpoints: Failpoints, log: Path, tmp_path: Path
):
    rows = {name: make_rows(tag=name) for name in ("dead", "next")}
    sources = {name: write_input(tmp_path / name, found) for name, found in rows.items()}
    failpoints.arm(Point("before", chunk(0, 0), "wait"))
    driver.begin(sources["dead"], log, job="dead")
    failpoints.await_event("wait")

    driver.kill()

    failpoints.arm()
    # The dead load is not yet idle for long enough to expire. The next load detects that its process has ended.
    assert driver.write(sources["next"], log, job="next", lockWaitTimeout="0s")["error"] is None
    with open_log(str(log)) as opened:
        done = opened.completion("next")
        assert done is not None
        assert done.rows == len(rows["next"])
        assert opened.load_locks().held == ()


GROUP = r"^_log/groups/"


@pytest.mark.parametrize(
    ("point", "visible"),
    [
        pytest.param(
            Point("staged", chunk(0, 2 * CHUNK), "wait"),
            False,
            id="in the middle of the chunks",
            marks=pytest.mark.full,
        ),
        pytest.param(Point("staged", GROUP, "wait"), False, id="before it is decided"),
        pytest.param(Point("linked", GROUP, "wait"), True, id="when it is decided", marks=pytest.mark.full),
    ],
)
def test_atomic_load_of_a_killed_driver_is_visible_completely_or_not(
    point: Point, driver: Driver, failpoints: Failpoints, log: Path, tmp_path: Path, *, visible: bool
):
    source = write_input(tmp_path / "input", ROWS)
    failpoints.arm(point)
    driver.begin(source, log, job="load", atomic="load")
    failpoints.await_event("wait")

    driver.kill()

    before = files_of(log)
    require(
        log, {each: [Held("load", found)] if visible else [] for each, found in routed(ROWS).items()}, completed=[]
    )
    failpoints.arm()
    assert driver.write(source, log, job="load", atomic="load")["error"] is None
    require_complete(log, "load", routed(ROWS))
    assert before.items() <= files_of(log).items(), "the next run resumes after the existing chunks"


def test_another_load_aborts_the_open_load_of_a_killed_driver(
    driver: Driver, failpoints: Failpoints, log: Path, tmp_path: Path
):
    rows = {name: make_rows(tag=name) for name in ("dead", "next")}
    sources = {name: write_input(tmp_path / name, found) for name, found in rows.items()}
    failpoints.arm(Point("staged", GROUP, "wait"))
    driver.begin(sources["dead"], log, job="dead", atomic="load")
    failpoints.await_event("wait")

    driver.kill()

    require(log, {partition: [] for partition in routed(rows["dead"])}, completed=[])
    failpoints.arm()
    assert driver.write(sources["next"], log, job="next", atomic="load", lockWaitTimeout="0s")["error"] is None
    refused = driver.write(sources["dead"], log, job="dead", atomic="load")
    assert refused["kind"] == "CONFLICT", "its plan is from before the other load"
    require_rows(log, routed(rows["next"]))
    next_offsets = json.dumps(refused["next_offsets"])
    again = driver.write(sources["dead"], log, job="dead", atomic="load", expectedOffsets=next_offsets)
    assert again["error"] is None
    first, second = routed(rows["next"]), routed(rows["dead"])
    require_rows(log, {partition: [*first[partition], *second[partition]] for partition in first})


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
