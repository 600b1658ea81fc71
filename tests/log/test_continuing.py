"""A load whose progress has expired when partitions are added: it resumes only if its state is certain."""

from dataclasses import replace

import pytest

from spark_cas.core.errors import ConflictError, LayoutChangedError, ProgressLostError
from spark_cas.core.expansion import Layouts
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.plan import Plan
from spark_cas.core.recorded_fields import from_json, to_json
from spark_cas.log import clock
from spark_cas.log.expanding import expand_log
from spark_cas.log.load.after_expansion import earlier_rows
from spark_cas.log.load.planning import pin_plan
from tests.support.loads import crash_after_chunks, rows_of, run_job, run_rest
from tests.support.memory_log import MemoryLog
from tests.support.raising import raises
from tests.support.writing import append_foreign, values_in

ROWS = rows_of(6, 0, 1)


class ForgetfulLog(MemoryLog):
    """A log whose ledger entries have expired, as may happen on brokers."""

    removes_by_itself = True

    def progress_of(self, partitions, job, group="", **how):
        return (None,) * len(partitions)


@pytest.fixture
def log():
    log = ForgetfulLog()
    log.create(2)
    return log


def everything(log):
    return sorted(value for each in range(log.layout().partitions) for value in values_in(log, each))


def test_possible_rows_of_the_job_are_not_repeated_without_evidence(log):
    crash_after_chunks(log, "job", ROWS, 2, expected="none")
    there = everything(log)
    expand_log(log, 4)
    with pytest.raises(ProgressLostError, match="job 'job' began, but its recorded progress is lost"):
        run_rest(log, "job", ROWS, expected="none")
    log.trim(0, log.bounds(0).end_offset)
    log.trim(1, log.bounds(1).end_offset)
    with pytest.raises(ProgressLostError):
        run_rest(log, "job", ROWS, expected="none")
    assert len(there) == 6


def test_claim_decides_without_other_evidence(log):
    crash_after_chunks(log, "job", ROWS, 2)
    there = everything(log)
    expand_log(log, 4)
    with pytest.raises(ConflictError):
        run_rest(log, "job", ROWS)
    assert everything(log) == there


def test_rows_that_may_have_moved_to_added_partitions_are_not_repeated(log, monkeypatch):
    """The claim of an added partition cannot detect rows in the partition that had its keys before."""
    crash_after_chunks(log, "job", ROWS, 2)
    there, then_ms = everything(log), clock.now_ms()
    expand_log(log, 4)
    monkeypatch.setattr(clock, "now_ms", lambda: then_ms + 4 * 86_400_000)
    with pytest.raises(ProgressLostError):
        pin_plan(log, "job", ExpectedOffsets("end"), earlier=earlier_rows(log, "job"))
    assert everything(log) == there


def test_unwritten_partition_has_no_rows_of_the_job(log):
    append_foreign(log, 0, "x")
    pin_plan(log, "job", ExpectedOffsets("none"))
    expand_log(log, 4)
    append_foreign(log, 0, "y")
    run_rest(log, "job", ROWS, expected="none")
    assert everything(log) == sorted(["x", "y", *ROWS[0], *ROWS[1]])


def test_log_expanded_by_another_tool_has_no_thresholds(log, monkeypatch):
    crash_after_chunks(log, "job", ROWS, 2)
    expand_log(log, 4)
    monkeypatch.setattr(log, "layouts", lambda *_: Layouts(log.layout()))
    with pytest.raises(LayoutChangedError, match="was planned for layout epoch"):
        run_rest(log, "job", ROWS)


def test_foreign_partitions_after_an_expansion_have_no_thresholds(log, monkeypatch):
    crash_after_chunks(log, "job", ROWS, 2)
    expand_log(log, 4)
    known = log.layouts().expansions
    expand_log(log, 6)
    monkeypatch.setattr(log, "layouts", lambda *_: Layouts(log.layout(), known))
    assert earlier_rows(log, "job") == ()
    with raises(LayoutChangedError, job="job", resumable=False):
        run_rest(log, "job", ROWS)


def test_too_long_job_name_cannot_resume(log):
    name = "j" * 195
    crash_after_chunks(log, name, ROWS, 2)
    run_job(log, name[1:], ROWS, expected="none")
    expand_log(log, 4)
    for job, told in ((name, "This is not possible for"), (name[1:], "is complete")):
        with pytest.raises(LayoutChangedError, match=told) as refused:
            run_job(log, job, ROWS, expected="end" if job == name else "none")
        assert refused.value.resumable is False


def test_plans_from_before_continue_nothing(log):
    crash_after_chunks(log, "job", ROWS, 2)
    plan = replace(log.plan("job"), rejoined=False)
    text = to_json(plan)
    for field in (',"earlier":[]', ',"continues":""', '"continues":"",', '"earlier":[],'):
        text = text.replace(field, "")
    assert "continues" not in text
    assert from_json(Plan, text) == plan
