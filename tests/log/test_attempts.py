"""Waits for other attempts and loads, on a simulated clock.

The last read before a timeout starts after the time is over.
"""

import time

import pytest

from spark_cas.core.errors import FencedError, TransactionEndedError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.outcome import Appended, Fenced
from spark_cas.log.load import locking
from spark_cas.log.load.append_once import append_once
from spark_cas.log.load.atomic_load import decide_group, in_one_transaction
from spark_cas.log.load.attempts import await_other
from spark_cas.log.load.locking import Applicant, acquire_lock, release_lock
from spark_cas.log.load.planning import pin_plan
from tests.support.memory_log import MemoryLog
from tests.support.writing import JobWriter, table_of

END = ExpectedOffsets("end")


class Clock:
    """A clock that moves only during a sleep or an explicit `move`."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self.move)

    def move(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


class Interrupted(MemoryLog):
    """A log with hooks before it returns bounds, before a claim, and after a ledger read."""

    before_bounds = before_claim = after_progress = staticmethod(lambda: None)

    def bounds_of(self, partitions, **how):
        self.before_bounds()
        return super().bounds_of(partitions, **how)

    def progress_of(self, partitions, job, group="", **how):
        found = super().progress_of(partitions, job, group, **how)
        self.after_progress()
        return found

    def claim(self, partition, plan):
        self.before_claim()
        return super().claim(partition, plan)


@pytest.fixture
def log():
    log = Interrupted()
    log.create(1)
    return log


def test_stalled_waiter_checks_again_before_it_abandons_an_attempt(log, clock):
    plan = pin_plan(log, "job", END)
    fenced, other = JobWriter(log, plan, task="run/0").claim, JobWriter(log, plan, task="run/0")
    looks = []

    def meanwhile():
        looks.append(clock.now)
        if len(looks) == 3:
            other.must_append("a", "b", complete=True)
            clock.move(31)

    log.after_progress = meanwhile
    found = await_other(
        log, fenced, Fenced("run/0"), done=lambda each: each.complete, missing=lambda _: False, wait_seconds=30
    )
    assert found.rows == 2


def test_stall_of_a_waiter_does_not_expire_an_appending_load(log, clock):
    acquire_lock(log, Applicant("first", "run"), END)  # without a process name
    first = JobWriter(log, pin_plan(log, "first", END))
    first.must_append("a")
    looks, appended = [], []

    def stand_still():
        looks.append(clock.now)
        if len(looks) == 2:
            clock.move(170)
            first.must_append("b")
            appended.append(clock.now)

    log.before_bounds = stand_still
    applicant = Applicant("second", "run", wait_seconds=3600)
    assert acquire_lock(log, applicant, END)
    assert clock.now >= appended[0] + applicant.gone_after(log)


def test_two_expired_loads_do_not_block_each_other(clock, monkeypatch):
    """The waiting load checks the other two alternately, because all pauses have the same length."""
    monkeypatch.setattr(locking._JITTER, "uniform", lambda *_: 1.0)
    log = Interrupted()
    log.create(2)
    named = [ExpectedOffsets.parse(each) for each in ('{"0": 0, "1": null}', '{"0": null, "1": 0}')]
    acquire_lock(log, Applicant("first", "run"), named[0])
    looks = []

    def second_comes():
        looks.append(clock.now)
        if len(looks) == 4:
            acquire_lock(log, Applicant("second", "run"), named[1])
        clock.move(0.3)

    log.before_bounds = second_comes
    applicant = Applicant("third", "run", wait_seconds=3600)
    assert acquire_lock(log, applicant, END)
    assert clock.now < looks[3] + 1.1 * applicant.gone_after(log)


def test_stalled_waiter_checks_again_before_it_expires_a_lock(log, clock):
    first = acquire_lock(log, Applicant("first", "run"), END)
    looks = []

    def given_back():
        looks.append(clock.now)
        if len(looks) == 2:
            clock.move(31)
            release_lock(log, first)

    log.before_bounds = given_back
    assert acquire_lock(log, Applicant("second", "run", wait_seconds=30), END)


def test_a_load_that_took_longer_than_the_patience_is_tried_again_all_the_same(log, clock):
    tries = []

    def append():
        tries.append(clock.now)
        clock.move(10 * log.patience_seconds)
        if len(tries) == 1:
            raise TransactionEndedError("a broker was killed.")
        return ()

    plan = pin_plan(log, "job", END, whole=True)
    assert in_one_transaction(log, plan, append, fenced_retry_wait_seconds=1.0) == ()
    assert len(tries) == 2


def test_atomic_append_is_retried_after_the_timeout(log, clock):
    tries = []

    def end_the_first():
        tries.append(clock.now)
        if len(tries) == 1:
            clock.move(10 * log.patience_seconds)
            raise TransactionEndedError("a broker was killed.")

    log.before_claim = end_the_first
    [outcome] = append_once(log, {0: table_of("a")}, job="job", expected_offset={0: 0}).values()
    assert isinstance(outcome, Appended)
    assert len(tries) == 2


def test_stalled_run_checks_again_for_a_commit_of_another(log, clock):
    plan, tries, entry = pin_plan(log, "job", END, whole=True), [], log.entry

    def append():
        tries.append(clock.now)
        if len(tries) == 1:
            raise FencedError("another run took over.")
        return ()

    def meanwhile(kind, job):
        found = entry(kind, job)
        if kind == "outcome" and tries:
            log.entry = entry
            decide_group(log, plan, ())
            clock.move(31)
        return found

    log.entry = meanwhile
    assert in_one_transaction(log, plan, append, fenced_retry_wait_seconds=30) == ()
    assert len(tries) == 2
