"""Checks of expected offsets when brokers report inconsistent or old bounds."""

import json
import time
from dataclasses import replace

import pytest

from spark_cas.core.claim import Claim
from spark_cas.core.errors import ConflictError, FencedError, JobMismatchError, StorageError, TruncatedError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.micro_batch import unexpired_ms
from spark_cas.core.offsets import Bounds
from spark_cas.core.outcome import Fenced, KeyConflict, error_of
from spark_cas.log.load.attempts import await_other
from spark_cas.log.load.planning import complete_job, pin_plan, refused_as_a_whole
from spark_cas.log.load.require_expected import lost_to_another, require_expected_again
from tests.support.faults import FaultyLog
from tests.support.loads import crash_after_chunks, load, rows_of
from tests.support.memory_log import MemoryLog
from tests.support.writing import append_foreign

NAMED = ExpectedOffsets.parse('{"0": 0, "1": 0}')
AHEAD = Bounds(0, 5)
NOTHING = (None, None)


class LaggingLog(MemoryLog):
    """A log whose first bounds are from a leader that is ahead of the one that serves reads."""

    ahead = 0

    def bounds_of(self, partitions, **more):
        self.ahead -= 1
        return (AHEAD,) * len(partitions) if self.ahead >= 0 else super().bounds_of(partitions, **more)


class DemotedLog(MemoryLog):
    """A log with demoted leaders while ``since`` is set.

    They report these old bounds unless the caller states the end offsets that it expects.
    """

    since: Bounds | None = None
    looks = 0

    def bounds_of(self, partitions, *, waiting, at_least=()):
        self.looks += 1
        if self.since is not None and not at_least:
            return (self.since,) * len(partitions)
        return super().bounds_of(partitions, waiting=waiting)


def two_partitions(kind):
    log = kind()
    log.create(2)
    return log


def old(log):
    """Return the plan of a job with four rows that began days ago, and whose ledger entries have expired."""
    crash_after_chunks(log, "job", rows_of(4, 0), 1)
    plan = replace(log.plan("job"), pinned_at_ms=time.time_ns() // 1_000_000 - unexpired_ms(None))
    log.forget(plan)
    return log.record_plan(plan)


@pytest.mark.parametrize("rejoined", [False, True])
def test_job_with_an_expired_ledger_does_not_report_no_row(rejoined):
    log = two_partitions(MemoryLog)
    plan = replace(old(log), rejoined=rejoined)
    told = refused_as_a_whole(log, plan, error_of(KeyConflict(3, "N1", 7, 9, 12), 1), ()).message
    with pytest.raises(JobMismatchError) as mismatch:
        pin_plan(log, "job", ExpectedOffsets("none"))
    with pytest.raises(ConflictError) as refused:
        require_expected_again(log, replace(plan, named=(0,)), NOTHING)
    for text in (told, mismatch.value.message, refused.value.message):
        assert "No row" not in text
        assert "in the log is unknown" in text
        assert "the ledger of a topic expires" in text


def test_of_a_job_that_is_complete_nothing_is_forgotten():
    log = two_partitions(MemoryLog)
    plan = old(log)
    append_foreign(log, 1, "x")
    done = complete_job(log, plan, load(log, replace(plan, expected_offsets=(None, None)), rows_of(4, 1)))
    with pytest.raises(JobMismatchError) as mismatch:
        pin_plan(log, "job", ExpectedOffsets("none"))
    assert f"{done.rows} rows of job 'job' are in the log and stay" in mismatch.value.message
    assert "expires" not in mismatch.value.message


def test_end_that_a_read_does_not_reach_is_an_error():
    log = two_partitions(LaggingLog)
    plan = pin_plan(log, "job", NAMED)
    log.ahead = 1
    with pytest.raises(StorageError, match="reported the end offset 5, then a lower one"):
        require_expected_again(log, plan, NOTHING)


def test_loss_is_reported_only_by_confirmed_bounds():
    log = two_partitions(DemotedLog)
    append_foreign(log, 1, "a")
    plan = pin_plan(log, "job", ExpectedOffsets.parse('{"1": 1}'))
    log.since = Bounds(0, 0)
    require_expected_again(log, plan, NOTHING)


def test_all_partitions_with_lost_records_are_read_together():
    log = DemotedLog()
    log.create(40)
    log.looks = 0
    with pytest.raises(TruncatedError) as lost:
        pin_plan(log, "job", ExpectedOffsets.parse(json.dumps({str(each): 7 for each in range(40)})))
    assert "partition 0" in lost.value.message
    assert log.looks == 2


def test_end_unknown_to_a_stale_leader_is_not_reported():
    log = two_partitions(MemoryLog)
    assert lost_to_another(log, pin_plan(log, "job", NAMED), 0, None, AHEAD) is None


def test_waiter_reads_later_records_only_if_the_end_moved():
    inner = two_partitions(LaggingLog)
    log, plan = FaultyLog(inner), pin_plan(inner, "job", NAMED)
    claim, inner.ahead = log.claim(0, plan), 1_000_000
    assert isinstance(claim, Claim)
    with pytest.raises(FencedError):
        await_other(log, claim, Fenced(None), done=lambda _: False, missing=lambda _: True, wait_seconds=0.5)
    assert log.calls["bounds_of"] > 1
    assert log.calls["read"] == 1


def test_stream_with_named_partitions_replans_without_the_ledger():
    log = FaultyLog(two_partitions(MemoryLog))
    for _ in range(2):
        plan = pin_plan(log, "stream", NAMED if not log.calls["record_plan"] else ExpectedOffsets("end"), stream=True)
    assert plan.named == (0, 1)
    assert log.calls["progress_of"] == 0
