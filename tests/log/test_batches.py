"""Streams without expected offsets on a ledger whose entries expire.

A missing entry counts only if it cannot have expired.
"""

import time
from collections.abc import Callable, Iterator

import pytest

from spark_cas.core.claim import Claim
from spark_cas.core.errors import ProgressLostError
from spark_cas.core.outcome import ProgressLost, Refusal
from spark_cas.core.plan import Plan, Progress, progress_expired
from spark_cas.log.backend import Backend
from tests.contract.streaming import StreamContract
from tests.support.batches import run_batch
from tests.support.faults import Fault, FaultyLog, InjectedFaultError, When
from tests.support.loads import Rows
from tests.support.memory_log import MemoryLog
from tests.support.writing import append_foreign, values_in

DAY_MS = 24 * 3_600_000
KEPT_DAYS = 7


class ForgetfulLog(MemoryLog):
    """A log whose ledger entries expire some days after they were written, as on Kafka."""

    ledger_at_once = True

    def progress(self, partition: int, job: str, group: str = "") -> Progress | None:
        self._forget()
        return super().progress(partition, job, group)

    def claim(self, partition: int, plan: Plan) -> Claim | Refusal:
        self._forget()
        claim = super().claim(partition, plan)
        if not isinstance(claim, Claim) or not plan.rejoined:
            return claim
        is_lost = progress_expired(plan, partition, claim.progress, claim.end_offset)
        return ProgressLost(plan.job) if is_lost else claim

    def _forget(self) -> None:
        oldest_ms = time.time_ns() // 1_000_000 - KEPT_DAYS * DAY_MS
        for at in self._partitions:
            at.ledger = {job: each for job, each in at.ledger.items() if each.committed_at_ms > oldest_ms}


class TestStreamsOverALedgerThatForgets(StreamContract):
    """The general stream tests also pass on this ledger."""

    @pytest.fixture
    def new_backend(self) -> Callable[[], Backend]:
        return ForgetfulLog

    def reopen(self, backend: Backend) -> Backend:
        return backend


@pytest.fixture
def log() -> Iterator[ForgetfulLog]:
    with ForgetfulLog() as log:
        log.create(3)
        yield log


@pytest.fixture
def on_day(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set the clock to a day."""
    return lambda day: monkeypatch.setattr(time, "time_ns", lambda: int((100 + day) * DAY_MS) * 1_000_000)


def killed_after(log: Backend, chunks: int, number: int, rows: Rows) -> None:
    with pytest.raises(InjectedFaultError):
        run_batch(FaultyLog(log, Fault("append", chunks, When.AFTER)), number, rows, run=f"killed-{number}")


def test_a_partition_that_gets_its_first_rows_late_is_known_to_have_none(
    log: ForgetfulLog, on_day: Callable[[float], None]
):
    for number in range(8):
        on_day(3 * number)
        append_foreign(log, 1, "x")
        run_batch(log, number, {0: [f"{number}"]})
    on_day(24)
    run_batch(log, 8, {0: ["8"], 1: ["a"], 2: ["b"]})
    assert values_in(log, 1) == ["x"] * 8 + ["a"]


def test_partition_idle_for_longer_than_the_ledger_continues(log: ForgetfulLog, on_day: Callable[[float], None]):
    on_day(0)
    run_batch(log, 0, {0: ["0"], 1: ["a"]})
    for number in range(1, 9):
        on_day(number)
        run_batch(log, number, {0: [f"{number}"]})
    assert log.progress(1, "stream") is None
    run_batch(log, 9, {0: ["9"], 1: ["b"]})
    assert values_in(log, 1) == ["a", "b"]


@pytest.mark.parametrize(("again", "lost"), [(5, False), (7.5, False), (8.1, True)])
def test_expired_rows_of_a_replayed_batch_are_not_repeated(
    log: ForgetfulLog, on_day: Callable[[float], None], again: float, *, lost: bool
):
    """The batch began on day 1, and wrote to another partition on day 5.

    That recent entry does not prove that none expired.
    """
    rows = {0: ["b"], 1: ["c"]}
    on_day(0)
    run_batch(log, 0, {0: ["a"]})
    on_day(1)
    with pytest.raises(InjectedFaultError):
        run_batch(FaultyLog(log, Fault("progress_of", 2, When.BEFORE)), 1, {1: ["c"]})
    on_day(5)
    killed_after(log, 1, 1, rows)
    on_day(again)
    if lost:
        with pytest.raises(ProgressLostError):
            run_batch(log, 1, rows)
    else:
        run_batch(log, 1, rows)
    assert (values_in(log, 0), values_in(log, 1)) == (["a", "b"], ["c"])


def test_stream_idle_for_longer_than_the_ledger_needs_a_user(log: ForgetfulLog, on_day: Callable[[float], None]):
    on_day(0)
    run_batch(log, 0, {0: ["a"]})
    on_day(KEPT_DAYS + 1)
    for number in (0, 1):
        with pytest.raises(ProgressLostError):
            run_batch(log, number, {0: ["a"]})
    assert values_in(log, 0) == ["a"]
    run_batch(log, 1, {0: ["b"]}, job="other")
    assert values_in(log, 0) == ["a", "b"]
