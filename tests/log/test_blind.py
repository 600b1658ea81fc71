import pytest

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import StorageError, UnknownOutcomeError
from spark_cas.core.guarantee import AT_LEAST_ONCE
from spark_cas.core.outcome import Unknown
from spark_cas.core.records import record_sizes
from spark_cas.log.load.append_rows import load_blind
from tests.contract.blind import run_blind
from tests.support.faults import Fault, FaultyLog, When
from tests.support.loads import batches_of
from tests.support.memory_log import MemoryLog
from tests.support.writing import values_in

TEN = {0: [f"{at}" for at in range(10)]}
SAID = r"Of partition 0 this attempt has appended 3 rows for certain, which stay.* appends all of its rows again"


def full():
    raise StorageError("the store is full.")


def log_of_one() -> MemoryLog:
    log = MemoryLog()
    log.create(1)
    return log


def test_failure_reports_rows_that_stay_and_rows_that_repeat():
    log = log_of_one()
    with pytest.raises(StorageError, match=f"the store is full. {SAID}"):
        run_blind(FaultyLog(log, Fault("append_blind", 2, When.BEFORE, full)), TEN)
    assert values_in(log, 0) == TEN[0][:3]


def test_unknown_outcome_does_not_advise_a_rerun(monkeypatch):
    log = log_of_one()
    append = log.append_blind

    def append_once(partition, layout, chunk, guarantee):
        monkeypatch.setattr(log, "append_blind", lambda *_: Unknown("no answer"))
        return append(partition, layout, chunk, guarantee)

    monkeypatch.setattr(log, "append_blind", append_once)
    with pytest.raises(UnknownOutcomeError, match=f"no answer. {SAID}") as refused:
        run_blind(log, TEN)
    assert "no row is appended twice" not in str(refused.value)


def test_a_task_without_rows_appends_nothing():
    log = log_of_one()
    assert run_blind(log, {}) == ()
    assert log.bounds(0).end_offset == 0


def test_partition_that_was_flushed_early_is_complete():
    log = MemoryLog()
    log.create(3)
    rows = {at: ["x" * 20] for at in range(3)}
    (size,) = record_sizes(next(iter(batches_of(rows, 1)))[1])
    limits = ChunkLimits(max_bytes=int(size))
    results = load_blind(log, log.layout(), batches_of(rows, 1), task="run/0", limits=limits, guarantee=AT_LEAST_ONCE)
    assert [(each.progress.rows, each.progress.chunks, each.progress.complete) for each in results] == [
        (1, 1, True)
    ] * 3
    assert [values_in(log, at) for at in range(3)] == [*rows.values()]
