"""Inject a crash at each failpoint of the protocol: after a retry of the same step, the log is correct."""

import inspect
from collections.abc import Callable
from contextlib import suppress

import pytest

from spark_cas.core.errors import OptionError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.guarantee import AT_LEAST_ONCE
from spark_cas.log.backend import Backend
from spark_cas.log.expanding import expand_log
from spark_cas.log.jobs import forget_job
from spark_cas.log.load.append_once import append_once
from spark_cas.log.load.append_rows import load_blind
from spark_cas.log.load.cancelling import Rejection, cancel_run
from spark_cas.log.load.locking import Applicant, acquire_lock, release_lock
from tests.support.faults import Fault, FaultyLog, InjectedFaultError, When, crash
from tests.support.loads import LIMITS, run_job
from tests.support.memory_log import MemoryLog
from tests.support.writing import table_of, values_in

BLIND = "blind"
"""The value of a record that may occur twice."""


class Strike:
    """A crash that records whether it was triggered."""

    def __init__(self) -> None:
        self.struck = False

    def __call__(self) -> None:
        self.struck = True
        crash()


# Some steps cannot be repeated. If the retry is rejected, the call that died has completed the step.
def expanded(log: Backend) -> None:
    with suppress(OptionError):
        expand_log(log, 3)


def forgotten(log: Backend) -> None:
    with suppress(OptionError):
        forget_job(log, "load", 0, force=True)


def blind(log: Backend) -> None:
    (batch,) = table_of([BLIND]).to_batches()
    load_blind(log, log.layout(), [(1, batch)], task="run/0", limits=LIMITS, guarantee=AT_LEAST_ONCE)


def locked(log: Backend) -> None:
    release_lock(log, acquire_lock(log, Applicant("locked", "run"), ExpectedOffsets.parse("end")))


def cancelled(log: Backend) -> None:
    cancel_run(log, "run", Rejection("CONFLICT", "x", (0,)))
    log.remove_cancelled("run")


STEPS: list[Callable[[Backend], object]] = [
    lambda log: log.create(2),
    lambda log: log.preflight(),
    lambda log: log.record_partitioner("murmur2"),
    lambda log: run_job(log, "load", {0: ["a", "b", "c"], 1: ["d"]}),
    lambda log: append_once(
        log, {0: table_of(["e"]), 1: table_of(["f"])}, job="whole", expected_offset={0: 3, 1: None}
    ),
    lambda log: append_once(log, 0, table_of(["g"]), job="keyed", expected_offset=0, compare="key"),
    blind,
    locked,
    cancelled,
    expanded,
    lambda log: run_job(log, "later", {2: ["h"]}),
    lambda log: log.progress(0, "load"),
    lambda log: log.offset_since(0, 0),
    lambda log: log.dated_since(0, 0),
    lambda log: values_in(log, 0),
    lambda log: log.trim(0, 0),
    forgotten,
]
"""The operations on a log, one after the other."""


def done(log: Backend, first: Backend) -> list[list[str]]:
    """Run each step in a process that may die and then in one that does not, and return the content of the log."""
    for step in STEPS:
        try:
            step(first)
        except InjectedFaultError:
            step(log)
    return [[value for value in values_in(log, at) if value != BLIND] for at in range(3)]


PLAIN = MemoryLog("flights")
UNDISTURBED = FaultyLog(PLAIN)
WHOLE = done(PLAIN, UNDISTURBED)


def test_the_steps_ask_for_all_that_the_protocol_has():
    asked = {
        name
        for name, method in inspect.getmembers(FaultyLog, inspect.isfunction)
        if not name.startswith("_") and "_at(" in inspect.getsource(method)
    }
    assert asked >= Backend.__abstractmethods__
    assert asked == UNDISTURBED.calls.keys()


@pytest.mark.parametrize("when", list(When), ids=lambda when: when.name.lower())
@pytest.mark.parametrize("operation", sorted(UNDISTURBED.calls))
def test_retry_after_a_kill_at_each_call_succeeds(operation, when):
    for call in {1, UNDISTURBED.calls[operation]}:
        log = MemoryLog("flights")
        assert done(log, FaultyLog(log, Fault(operation, call, when, strike := Strike()))) == WHOLE
        assert strike.struck
        assert values_in(log, 1).count(BLIND) in (1, 2)
