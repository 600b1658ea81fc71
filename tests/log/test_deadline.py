"""Nested deadlines, and waits that respect them."""

import logging
import time

import pytest

from spark_cas.log.deadline import ConfirmingRead, Wait, extend, fresh_deadline, within
from spark_cas.log.load.locking import Applicant
from spark_cas.log.timing import RETRY_TIMEOUT_MS
from tests.support.memory_log import MemoryLog


def test_outer_deadline_limits_inner_waits():
    with within(0), within(60):
        assert Wait(60, "reading").left == 0
        assert not Wait(60, "reading").again("it is missing")
    assert Wait(60, "reading").left > 0


def test_decision_has_its_own_deadline():
    with within(0), fresh_deadline(60):
        assert Wait(60, "reading").left > 0
    with within(60), fresh_deadline(0):
        assert Wait(60, "reading").left == 0


def test_progress_extends_all_deadlines_that_are_extensible():
    with within(0, extensible=True), within(0, extensible=True):
        outer = Wait(60, "reading")
        extend(60)
        assert outer.left > 50
        assert Wait(60, "reading").left > 50
    with fresh_deadline(0):
        extend(60)
        assert Wait(60, "reading").left > 50


def test_progress_does_not_extend_a_limit_on_the_time_for_others():
    with within(0), within(0, extensible=True):
        extend(60)
        assert Wait(60, "reading").left == 0
    with within(0, extensible=True), within(0):
        extend(60)
        assert Wait(60, "reading").left == 0


def test_progress_never_shortens_a_deadline():
    with within(60, extensible=True):
        extend(1)
        assert Wait(60, "reading").left > 50


def test_a_wait_ends_at_its_deadline_and_not_before_it(monkeypatch):
    now, pauses = 0.0, []

    def sleep(seconds):
        nonlocal now
        pauses.append(seconds)
        now += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "sleep", sleep)
    wait = Wait(10, "reading")
    while wait.again("it is missing"):
        pass
    assert (now, wait.left, wait.waited) == (10, 0, 10)
    assert len(pauses) > 3


def test_long_wait_is_logged_with_its_reason(monkeypatch, caplog):
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    wait = Wait(120, "reading topic flights")
    with caplog.at_level(logging.WARNING, "spark_cas"):
        assert wait.again("it is missing")
        assert not caplog.records
        now = 60.0
        assert wait.again("it is missing")
    [line] = caplog.messages
    assert line == "reading topic flights: it is missing. Waiting since 60 s, for 60 s more at most."


@pytest.mark.parametrize("suspended_seconds", [lambda _: 0, lambda _: 30, lambda reads: 30 * (reads == 1)])
def test_definite_error_is_confirmed_after_its_timeout(monkeypatch, suspended_seconds):
    """The process may be suspended during a read, or right after it."""
    now = 0.0

    def sleep(seconds):
        nonlocal now
        now += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "sleep", sleep)
    wait, begun, ended = ConfirmingRead(10, "reading"), [], []
    while True:
        begun.append(now)
        now += suspended_seconds(len(begun))
        ended.append(now)
        if not wait.again("the metadata may be stale"):
            break
    assert begun[-1] >= ended[0] + 10 > begun[-2]


def test_definite_error_is_confirmed_despite_an_outer_deadline():
    began = time.monotonic()
    with within(0):
        wait = ConfirmingRead(0.2, "reading")
        assert wait.again("the metadata may be stale")
        while wait.again("the metadata may be stale"):
            pass
    assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize("patience_seconds", [5, 600])
def test_load_does_not_expire_before_the_timeout_of_a_waiter(patience_seconds):
    log = MemoryLog()
    log.patience_seconds = patience_seconds
    assert Applicant("job", "run").gone_after(log) > max(patience_seconds, RETRY_TIMEOUT_MS / 1000)
