"""The first definite error of a task cancels its run: the other tasks stop, and the appended rows are counted."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import FormatError, StorageError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.plan import PartitionResult, Plan
from spark_cas.log import clock, timing
from spark_cas.log.backend import Backend
from spark_cas.log.load import cancelling
from spark_cas.log.load.append_rows import append_rows
from spark_cas.log.load.cancelling import Rejection, RunCancelledError, TaskRun, cancel_run, rejection_from_json
from spark_cas.log.load.planning import pin_plan, rows_before, rows_of_run
from tests.support.faults import Fault, FaultyLog, InjectedFaultError, When, crash
from tests.support.memory_log import MemoryLog
from tests.support.writing import append_foreign, table_of, values_in

REJECTION = Rejection("INPUT_CHANGED", "partition 3: the rows differ.", (3,))
OLD_MS = 0
"""The start of an old run, whose first chunk is checked."""


@pytest.fixture
def log() -> MemoryLog:
    log = MemoryLog()
    log.create(3)
    return log


@pytest.fixture(autouse=True)
def time_passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Provide a clock that only the test moves. This process has not checked any run yet."""
    now = [1000.0]
    monkeypatch.setattr("spark_cas.log.load.cancelling.time.monotonic", lambda: now[0])
    cancelling._next_check.clear()
    yield now
    cancelling._next_check.clear()


def load(
    log: Backend, plan: Plan, rows: list[tuple[int, str]], run: TaskRun, *, task: str = "run/0", atomic: bool = False
) -> tuple[PartitionResult, ...]:
    batches = [(partition, batch(values)) for partition, values in rows]
    return append_rows(log, plan, batches, task=task, limits=ChunkLimits(max_records=2), atomic=atomic, run=run)


def batch(values: str) -> pa.RecordBatch:
    return table_of(values).to_batches()[0]


def plan_of(log: Backend, expected: str = "none") -> Plan:
    return pin_plan(log, "job", ExpectedOffsets(expected))


@pytest.mark.parametrize("atomic", [False, True])
def test_a_task_of_a_cancelled_run_appends_nothing_and_claims_nothing(log, atomic):
    plan, faulty = plan_of(log), FaultyLog(log)
    cancel_run(log, "run", REJECTION)
    with pytest.raises(RunCancelledError) as raised:
        load(faulty, plan, [(0, "abcde")], TaskRun("run", OLD_MS), atomic=atomic)
    assert raised.value.rejection == REJECTION
    assert (faulty.calls["claim"], faulty.calls["append"]) == (0, 0)


def test_a_task_stops_within_the_time_between_two_checks(log, time_passes):
    plan, run = plan_of(log), TaskRun("run", OLD_MS)

    def input_that_takes_time() -> Iterator[tuple[int, pa.RecordBatch]]:
        yield 0, batch("abcd")
        cancel_run(log, "run", REJECTION)
        for _ in range(10):
            time_passes[0] += timing.current().cancel_check / 2
            yield 1, batch("abcd")

    with pytest.raises(RunCancelledError):
        append_rows(log, plan, input_that_takes_time(), task="run/0", limits=ChunkLimits(max_records=2), run=run)
    assert [len(values_in(log, each)) for each in range(3)] == [2, 2, 0]
    assert run.appended == ((0, 2), (1, 2))


def test_the_last_chunks_of_many_partitions_are_checked_too(log, time_passes, monkeypatch):
    """After the end of the input, one task may have a chunk for each of many partitions."""
    plan = plan_of(log)
    append = log.append

    def slow(claim, chunk):
        cancel_run(log, "run", REJECTION)
        time_passes[0] += timing.current().cancel_check
        return append(claim, chunk)

    monkeypatch.setattr(log, "append", slow)
    with pytest.raises(RunCancelledError):
        load(log, plan, [(0, "a"), (1, "b"), (2, "c")], TaskRun("run", OLD_MS))
    assert [len(values_in(log, each)) for each in range(3)] == [1, 0, 0]


def test_another_run_of_the_same_job_is_not_stopped(log):
    plan = plan_of(log)
    cancel_run(log, "run", REJECTION)
    load(log, plan, [(0, "abc")], TaskRun("other", OLD_MS), task="other/0")
    assert values_in(log, 0) == ["a", "b", "c"]


def test_a_run_without_a_cancellation_and_a_load_without_a_run_complete(log):
    assert len(load(log, plan_of(log), [(0, "abc")], TaskRun("run", OLD_MS))) == 1
    assert len(load(log, plan_of(log), [(0, "abc")], TaskRun(), task="again/0")) == 1


def test_a_short_run_sends_no_request(log):
    plan, faulty = plan_of(log), FaultyLog(log)
    for number in range(50):
        run = TaskRun("run", clock.now_ms())
        load(faulty, plan, [(0, "a")] if number == 0 else [(1, "a")], run, task=f"run/{min(number, 1)}")
    assert faulty.calls["entry"] == 0


def test_a_process_with_many_short_tasks_sends_few_requests(log, time_passes):
    """Tasks that begin late in the run do not skip the check for a whole interval each."""
    faulty = FaultyLog(log)
    for _ in range(100):
        TaskRun("run", OLD_MS).check(faulty)
        time_passes[0] += timing.current().cancel_check / 10
    assert 9 <= faulty.calls["entry"] <= 11


@pytest.mark.parametrize("began_ms", [OLD_MS, 10**15], ids=["long ago", "by a clock that is ahead"])
def test_the_first_task_of_a_process_checks_a_run_that_is_not_young(log, began_ms):
    cancel_run(log, "run", REJECTION)
    with pytest.raises(RunCancelledError):
        TaskRun("run", began_ms).check(log)


@pytest.mark.parametrize("failure", [StorageError("the store is down"), FormatError("not this version")])
def test_a_check_that_fails_stops_no_task(log, failure):
    def fail() -> None:
        raise failure

    plan, faulty = plan_of(log), FaultyLog(log, Fault("entry", 1, When.BEFORE, fail))
    load(faulty, plan, [(0, "abc")], TaskRun("run", OLD_MS))
    assert faulty.calls["entry"] == 1
    assert values_in(log, 0) == ["a", "b", "c"]


def test_an_entry_of_another_format_stops_no_task(log):
    log.put_entry("cancelled", "run", "{}")
    with pytest.raises(FormatError):
        rejection_from_json("{}")
    TaskRun("run", OLD_MS).check(log)


def test_a_fenced_task_stops_too(log, time_passes, monkeypatch):
    """Its successor may have stopped, and then makes no more progress."""
    plan, claim, progress = plan_of(log), log.claim, log.progress

    def overtaken(partition, plan):
        found = claim(partition, plan)
        monkeypatch.setattr(log, "claim", claim)
        with pytest.raises(InjectedFaultError):
            load(FaultyLog(log, Fault("append", 2, When.BEFORE, crash)), plan, [(0, "abcde")], TaskRun())
        return found

    def cancelled(*arguments):
        cancel_run(log, "run", REJECTION)
        time_passes[0] += timing.current().cancel_check
        return progress(*arguments)

    monkeypatch.setattr(log, "claim", overtaken)
    monkeypatch.setattr(log, "progress", cancelled)
    run = TaskRun("run", clock.now_ms())
    with pytest.raises(RunCancelledError):
        load(log, plan, [(0, "abcde")], run)
    assert run.appended == ((0, 2),), "those of the successor, which is of the same run"


def test_rows_of_an_attempt_that_was_killed_count_for_the_run(log):
    plan = plan_of(log)
    dying = FaultyLog(log, Fault("append", 3, When.BEFORE, crash))
    with pytest.raises(InjectedFaultError):
        load(dying, plan, [(0, "abcdefgh")], TaskRun("run", OLD_MS))
    second = TaskRun("run", OLD_MS, rows_before(log, plan))
    load(log, plan, [(0, "abcdefgh"), (1, "x")], second)
    assert second.appended == ((0, 8), (1, 1))


def test_rows_of_an_earlier_run_and_of_other_writers_do_not_count(log):
    load_job = [(0, "abcd"), (1, "x")]
    with pytest.raises(InjectedFaultError):
        load(
            FaultyLog(log, Fault("append", 2, When.BEFORE, crash)), plan_of(log), load_job, TaskRun(), task="first/0"
        )
    append_foreign(log, 1, "another writer's")
    plan = plan_of(log)
    before = rows_before(log, plan)
    assert before == (2, 0, 0)
    run = TaskRun("run", OLD_MS, before)
    load(log, plan, load_job, run)
    assert run.appended == ((0, 2), (1, 1))


def test_rows_of_an_earlier_run_do_not_count_for_a_second_attempt(log):
    """Rows that another run of the job appends at the same time do not count either."""
    rows = [(0, "abcdefgh")]

    def die_at_append(call: int, run: TaskRun, task: str) -> None:
        dying = FaultyLog(log, Fault("append", call, When.BEFORE, crash))
        with pytest.raises(InjectedFaultError):
            load(dying, plan_of(log), rows, run, task=task)

    die_at_append(2, TaskRun(), "first/0")
    plan = plan_of(log)
    before = rows_before(log, plan)
    die_at_append(2, TaskRun("run", OLD_MS, before), "run/0")
    second = TaskRun("run", OLD_MS, before)
    die_at_append(2, second, "run/0")
    assert second.appended == ((0, 4),)
    die_at_append(1, TaskRun("other"), "other/0")
    late = TaskRun("late", OLD_MS, before)
    load(log, plan, rows, late, task="late/0")
    assert late.appended == ((0, 2),)


def test_rows_of_tasks_without_a_report_are_in_the_ledger(log):
    first = plan_of(log)
    load(log, first, [(2, "ab")], TaskRun(), task="first/0")
    plan = plan_of(log)
    before = rows_before(log, plan)
    with pytest.raises(InjectedFaultError):
        load(FaultyLog(log, Fault("append", 2, When.BEFORE, crash)), plan, [(0, "abcd")], TaskRun("run", OLD_MS))
    assert rows_of_run(log, plan, "run", before, {1: 5}) == {0: 2, 1: 5}
    assert rows_of_run(log, plan, "run", None, {1: 5}) is None
    assert rows_of_run(log, plan, "run", before, {0: None, 1: 5}) is None
    assert rows_of_run(log, plan, "another", before, {}) == {}


def test_rows_before_a_run_are_not_known_if_the_ledger_does_not_report_them(log):
    def fail() -> None:
        raise StorageError("undecided")

    plan_of(log)
    plan = plan_of(log)
    assert rows_before(FaultyLog(log, Fault("progress_of", 1, When.BEFORE, fail)), plan) is None
    assert rows_before(log, plan) == (0, 0, 0)
