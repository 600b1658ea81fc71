"""What is recorded of an attempt: a failure is definite just where the protocol says that nothing was appended."""

import pytest

from spark_cas.core.errors import StorageError
from spark_cas.log.memory import MemoryLog
from spark_cas.testing.faults import Fault, FaultyLog, When
from spark_cas.testing.history import FAIL, INFO, Operation, check_log
from tests.chaos.asking import ask
from tests.chaos.reader import records_of


def fail():
    raise StorageError("as it was told to")


def arguments(expected, chunk_records=None):
    return {
        "job": "w1-1",
        "records": {"0": [["k", "w1-1/0/0"]]},
        "expected": expected,
        "compare": "partition",
        "chunk_records": chunk_records,
        "granted": False,
    }


def asked(log, operation, when, expected, chunk_records=None):
    """What came of an append to a log one call of which fails."""
    faulty = FaultyLog(log, Fault(operation, 1, when, fail))
    return ask(faulty, arguments(expected, chunk_records), "w1.1")[0]


@pytest.fixture
def log():
    found = MemoryLog("flights")
    found.create(2)
    return found


@pytest.mark.parametrize("operation", ["layout", "record_plan", "claim", "append"])
def test_a_store_that_failed_before_anything_was_appended_refused_definitely(log, operation):
    assert asked(log, operation, When.BEFORE, {"0": 0}) == FAIL


def test_a_store_that_failed_behind_the_append_tells_nothing(log):
    assert asked(log, "record_completion", When.BEFORE, {"0": 0}) == INFO


@pytest.mark.parametrize(("expected", "chunk_records"), [({"0": 0, "1": 0}, None), ({"0": 0}, 1)])
def test_of_a_whole_or_a_load_that_a_store_failed_nothing_is_known(log, expected, chunk_records):
    assert asked(log, "append", When.BEFORE, expected, chunk_records) == INFO


def test_a_failure_behind_which_the_records_are_there_is_a_violation(log):
    outcome = asked(log, "append", When.AFTER, {"0": 0})
    told = Operation("w1", "append", arguments({"0": 0}), 1, 2, outcome, {"kind": "STORAGE"})
    found = list(records_of(log, 0, log.bounds(0).range))
    assert found
    assert [each.number for each in check_log([told], {0: found})] == [5]
