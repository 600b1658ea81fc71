import pytest

from spark_cas.core.errors import StorageError, UnknownOutcomeError
from spark_cas.core.outcome import Unknown
from spark_cas.log.memory import MemoryLog
from tests.contract.blind import run_blind
from tests.support.faults import Fault, FaultyLog, When
from tests.support.writing import values_in

TEN = {0: [f"{at}" for at in range(10)]}
SAID = r"Of partition 0 this attempt has appended 3 rows for certain, which stay.* appends all of its rows again"


def full():
    raise StorageError("the store is full.")


def log_of_one() -> MemoryLog:
    log = MemoryLog()
    log.create(1)
    return log


def test_a_store_that_fails_in_between_says_what_stays_and_what_comes_again():
    log = log_of_one()
    with pytest.raises(StorageError, match=f"the store is full. {SAID}"):
        run_blind(FaultyLog(log, Fault("append_blind", 2, When.BEFORE, full)), TEN)
    assert values_in(log, 0) == TEN[0][:3]


def test_what_is_not_known_is_not_said_to_be_safe_to_run_again(monkeypatch):
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
