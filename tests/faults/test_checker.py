"""The checker detects wrong rows and ledgers. Otherwise the other fault tests would prove nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from spark_cas import open_log
from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.log.load.append_rows import append_rows
from spark_cas.log.load.planning import complete_job, pin_plan
from tests.faults.checker import Held, findings, require_complete, require_prefix
from tests.faults.rows import Row, as_records

ROWS = [(f"key-{at}".encode(), f"value-{at}".encode()) for at in range(20)]
HELD = {0: [Held("load", ROWS)], 1: [Held("load", [])]}


def load(log: Path, rows: list[Row], job: str = "load", *, complete: bool = True) -> None:
    with open_log(str(log)) as opened:
        opened.create(2)
        plan = pin_plan(opened, job, ExpectedOffsets.parse("end"))
        results = append_rows(opened, plan, [(0, as_records(rows))], task="run/0", limits=ChunkLimits(max_records=6))
        if complete:
            complete_job(opened, plan, results)


def twice(rows: list[Row]) -> list[Row]:
    return [*rows[:7], rows[6], *rows[7:]]


def missing(rows: list[Row]) -> list[Row]:
    return [*rows[:7], *rows[8:]]


def missing_at_the_end(rows: list[Row]) -> list[Row]:
    return rows[:-1]


def reordered(rows: list[Row]) -> list[Row]:
    return [*rows[:7], rows[8], rows[7], *rows[9:]]


def changed(rows: list[Row]) -> list[Row]:
    return [*rows[:7], (rows[7][0], b"other"), *rows[8:]]


def doubled(rows: list[Row]) -> list[Row]:
    return [*rows, *rows]


def test_a_log_as_it_should_be_passes(log: Path):
    load(log, ROWS)
    assert findings(log, HELD, completed=["load"]) == []
    require_complete(log, "load", {0: ROWS, 1: []})


@pytest.mark.parametrize("edit", [twice, missing, missing_at_the_end, reordered, changed, doubled])
def test_wrong_rows_are_detected(edit: Callable[[list[Row]], list[Row]], log: Path):
    load(log, edit(ROWS))
    found = findings(log, HELD, completed=["load"])
    assert any("the first difference" in each for each in found)
    assert any(" instead of " in each for each in found)
    assert any("the completion" in each for each in found)


@pytest.mark.parametrize("edit", [twice, reordered, changed, doubled])
def test_rows_that_are_no_prefix_are_detected(edit: Callable[[list[Row]], list[Row]], log: Path):
    load(log, edit(ROWS), complete=False)
    with pytest.raises(AssertionError):
        require_prefix(log, "load", {0: ROWS, 1: []})


def test_rows_of_another_job_are_detected(log: Path):
    load(log, ROWS)
    load(log, ROWS[:3], job="other")
    assert any("3 rows are there again" in each for each in findings(log, HELD, completed=["load"]))


def test_job_without_a_completion_is_detected(log: Path):
    load(log, ROWS, complete=False)
    assert findings(log, HELD, completed=["load"]) == ["job load has no completion in the registry"]
