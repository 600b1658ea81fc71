"""Loads and streams under random schedules, compared with the input.

Any attempt may be cut off. Events happen between any two calls of the log, and between any two batches of input: the
process crashes, another attempt or another run acts, or another writer appends.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import ConditionalLogError, FencedError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.micro_batch import Batch
from spark_cas.core.plan import PartitionResult, Plan
from spark_cas.core.records import RECORDS
from spark_cas.log.backend import Backend
from spark_cas.log.load.append_micro_batch import begin_stream, complete_batch, ledger_before, load_batch
from spark_cas.log.load.append_rows import append_rows
from spark_cas.log.load.planning import complete_job, pin_plan
from tests.support.faults import FaultyLog, InjectedFaultError, When
from tests.support.memory_log import MemoryLog
from tests.support.writing import append_foreign, records_in

Rows = list[dict[str, Any]]
Results = tuple[PartitionResult, ...]

PARTITIONS = range(2)
BATCHES = 3
EVENTS = 8
DEPTH = 2
ATTEMPTS = 4
RETRIED = (InjectedFaultError, FencedError, EOFError)
# Few different rows, so that equal rows, null keys and missing timestamps are frequent.
CHOICE: Rows = [
    {"key": key, "value": value, "headers": None, "timestamp": time_ms}
    for key in (b"k", None)
    for value in (b"a", b"b", b"c")
    for time_ms in (None, 7)
]


class WatchedLog(FaultyLog):
    """A log that calls a function before and after each call."""

    def __init__(self, inner: Backend, act: Callable[[], None]) -> None:
        super().__init__(inner)
        self._act = act

    def _strike(self, operation: str, when: When) -> None:
        self._act()


class Schedule:
    """The events of one random schedule. Subclasses define the runs and attempts."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.log = MemoryLog()
        self.log.create(len(PARTITIONS))
        self.watched = WatchedLog(self.log, self.act)
        self.trace: list[str] = [f"seed {seed}"]
        self.has_foreign = False
        self.current: tuple[Plan, str] | None = None
        self.runs = self.depth = 0
        self.events = EVENTS

    def run(self) -> None:
        raise NotImplementedError

    def attempt(self, plan: Plan, run: str, partition: int, cut: int | None) -> Results:
        raise NotImplementedError

    def rows(self, most: int) -> Rows:
        return self.random.choices(CHOICE, k=self.random.randint(0, most))

    def act(self) -> None:
        if self.events == 0 or self.depth == DEPTH:
            return
        match self.random.randrange(12):
            case 0:
                self.events -= 1
                self.trace.append("crash")
                raise InjectedFaultError
            case 1 if self.has_foreign:
                self.events -= 1
                append_foreign(self.log, self.random.choice(PARTITIONS), "other")
            case 2 | 3:
                self.events -= 1
                self.beside()

    def beside(self) -> None:
        """Run another attempt of a task, or another run, in the middle of the present one."""
        before, self.depth = self.current, self.depth + 1
        try:
            if before is None or self.random.choice([True, False]):
                self.run()
            else:
                self.attempt(*before, self.random.choice(PARTITIONS), self.random.randint(0, 6))
        except (*RETRIED, ConditionalLogError) as error:
            self.trace.append(f"beside: {type(error).__name__}")
        finally:
            self.current, self.depth = before, self.depth - 1

    def input(
        self, partition: int, rows: Rows, cut: int | None, *, end: bool
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows up to ``cut``. With end markers, a task detects that it was cut off."""
        size = self.random.randint(1, 3)
        for at in range(0, len(rows[:cut]), size):
            self.act()
            yield partition, pa.RecordBatch.from_pylist(rows[:cut][at : at + size], RECORDS)
        self.act()
        if end and cut is not None:
            raise EOFError

    def tasks(self, plan: Plan, rows: list[Rows]) -> Results:
        """Run a task for each partition, which Spark retries until an attempt is not cut off."""
        self.runs += 1
        run = f"run-{self.runs}"
        self.current = plan, run
        results: list[PartitionResult] = []
        for partition in PARTITIONS:
            for left in reversed(range(ATTEMPTS)):
                cut = self.random.choice([None, self.random.randint(0, len(rows[partition]))]) if left else None
                self.trace.append(f"{run}: partition {partition}, cut {cut}")
                try:
                    result = self.attempt(plan, run, partition, cut)
                except RETRIED:
                    continue
                except ConditionalLogError:
                    if cut is None:
                        raise
                    continue
                if cut is None:
                    results += result
                    break
            else:
                raise InjectedFaultError
        return tuple(results)

    def own(self, partition: int) -> list[tuple[Any, ...]]:
        """Return the rows of the job in the log. A record of another writer has another key."""
        return [compared(row) for _, row in records_in(self.log, partition) if row["key"] != b"other"]

    def finish(self) -> None:
        """Run until a run succeeds, as a user does."""
        try:
            for _ in range(EVENTS + 1):
                try:
                    return self.run()
                except RETRIED:
                    continue
            pytest.fail("no run ends")
        except Exception as error:
            raise AssertionError("\n".join(self.trace)) from error


def compared(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return a row as it is compared. The log sets missing timestamps."""
    time = row["timestamp"]
    time_ms = time.timestamp() * 1000 if hasattr(time, "timestamp") else time
    return row["key"], row["value"], time_ms == 7


class LoadSchedule(Schedule):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.given = [self.rows(6) for _ in PARTITIONS]
        self.has_end, self.has_foreign = self.random.choices([True, False], k=2)
        self.limits = ChunkLimits(max_records=2, max_bytes=1_000_000, max_seconds=1_000)

    def attempt(self, plan: Plan, run: str, partition: int, cut: int | None) -> Results:
        rows = self.input(partition, self.given[partition], cut, end=self.has_end)
        try:
            return append_rows(
                self.watched,
                plan,
                rows,
                task=f"{run}/{partition}",
                limits=self.limits,
                has_end=self.has_end,
                fenced_retry_wait_seconds=0,
            )
        finally:
            own, expected = self.own(partition), [compared(row) for row in self.given[partition]]
            progress = self.log.progress(partition, "job")
            assert own == expected[: len(own)]
            assert len(own) == (progress.rows if progress else 0)
            assert own == expected or not (progress and progress.complete)

    def run(self) -> None:
        expected = "none" if self.has_foreign else "end"
        plan = pin_plan(self.watched, "job", ExpectedOffsets.parse(expected))
        complete_job(self.watched, plan, self.tasks(plan, self.given))
        assert [self.own(each) for each in PARTITIONS] == [[compared(row) for row in each] for each in self.given]


class StreamSchedule(Schedule):
    """Batches of a query. If they are not sorted, each attempt has another order, and no end markers."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.given = [[self.rows(6) for _ in PARTITIONS] for _ in range(BATCHES)]
        self.sorted = self.random.choice([True, False])
        self.order_by = () if self.sorted else self.random.choice([None, ["value"]])
        self.number = self.committed = 0

    def attempt(self, plan: Plan, run: str, partition: int, cut: int | None) -> Results:
        number, rows = self.number, self.given[self.number][partition]
        rows = rows if self.sorted else self.random.sample(rows, len(rows))
        has_end = self.sorted and self.random.choice([True, False])
        try:
            return load_batch(
                self.watched,
                plan,
                Batch("q", number),
                self.input(partition, rows, cut, end=has_end),
                task=f"{run}/{partition}",
                limits=ChunkLimits(max_records=100 if self.order_by is None else self.random.randint(1, 3)),
                order_by=self.order_by,
                has_end=has_end,
                ledger=ledger_before(self.log, plan),
                fenced_retry_wait_seconds=0,
            )
        finally:
            self.check()

    def run(self) -> None:
        while self.number < BATCHES:
            number = self.number
            plan = begin_stream(self.watched, "stream", ExpectedOffsets.parse("none"))
            complete_batch(self.watched, plan, Batch("q", number), self.tasks(plan, self.given[number]))
            self.committed = max(self.committed, number + 1)
            self.check()
            if self.depth:
                return
            self.number += 1

    def check(self) -> None:
        for partition in PARTITIONS:
            own = Counter(self.own(partition))
            expected = [Counter(map(compared, each[partition])) for each in self.given]
            assert own >= sum(expected[: self.committed], Counter())
            assert own <= sum(expected[: self.number + 1], Counter())


@pytest.mark.parametrize("schedule", [LoadSchedule, StreamSchedule])
def test_each_row_is_appended_once_under_any_schedule(schedule: type[Schedule]) -> None:
    for seed in range(80):
        one = schedule(seed)
        one.finish()
        one.events = EVENTS
        one.finish()
