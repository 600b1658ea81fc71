"""Fault injection around a backend: a call fails before it reaches the log, or its reply is lost."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Self, TypeVar

import pyarrow as pa

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.expansion import Expansion, Intent, Layouts
from spark_cas.core.guarantee import REQUIRED
from spark_cas.core.load_locks import LoadLocks
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Outcome, Refusal, Unknown
from spark_cas.core.partitioner import DEFAULT_PARTITIONER, Partitioner, Placement
from spark_cas.core.plan import Completion, Layout, Plan, Progress
from spark_cas.core.records import RECORDS
from spark_cas.log.backend import Backend, Preflight
from spark_cas.log.protocol import EntryKind

Result = TypeVar("Result")


class InjectedFaultError(Exception):
    """Simulates a killed process. Nothing after it runs."""


class When(Enum):
    """Whether the fault occurs before or after the call."""

    BEFORE = "the request is lost"
    AFTER = "the response is lost"


def crash() -> None:
    """Simulate a crash of the process."""
    raise InjectedFaultError


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at one call: a crash by default, or another ``action``, such as an append of another writer."""

    operation: str
    """Name of the method, such as ``append``."""
    call: int
    """Number of the call, counted from 1."""
    when: When
    action: Callable[[], None] = crash


class FaultyLog(Backend):
    """A backend with injected faults. ``calls`` counts the calls of each operation."""

    def __init__(self, inner: Backend, *faults: Fault, lose_append_replies: bool = False) -> None:
        self.topic = inner.topic
        self.patience_seconds = inner.patience_seconds
        self.group_in_process = inner.group_in_process
        self.ledger_at_once = inner.ledger_at_once
        self.calls: Counter[str] = Counter()
        self._inner = inner
        self._faults = {(fault.operation, fault.call, fault.when): fault for fault in faults}
        self._lose_append_replies = lose_append_replies

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the inner backend open, because the test owns it."""

    def layout(self) -> Layout:
        return self._at("layout", self._inner.layout)

    def bounds(self, partition: int) -> Bounds:
        return self._at("bounds", lambda: self._inner.bounds(partition))

    def claim(self, partition: int, plan: Plan) -> Claim | Refusal:
        return self._at("claim", lambda: self._inner.claim(partition, plan))

    def append(self, claim: Claim, chunk: Chunk) -> Outcome:
        """Append with the inner backend. With ``lose_append_replies``, a crash returns `Unknown`."""
        try:
            return self._at("append", lambda: self._inner.append(claim, chunk))
        except InjectedFaultError:
            if self._lose_append_replies:
                return Unknown("the reply was lost")
            raise

    def read(
        self, partition: int, offsets: OffsetRange, columns: tuple[str, ...] = tuple(RECORDS.names)
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Read with the inner backend. Faults occur at this call, not during iteration."""
        return self._at("read", lambda: self._inner.read(partition, offsets, columns))

    def progress(self, partition: int, job: str, group: str = "") -> Progress | None:
        return self._at("progress", lambda: self._inner.progress(partition, job, group))

    def bounds_of(
        self, partitions: Sequence[int], *, waiting: bool, at_least: Sequence[int] = ()
    ) -> tuple[Bounds, ...]:
        return self._at("bounds_of", lambda: self._inner.bounds_of(partitions, waiting=waiting, at_least=at_least))

    def progress_of(
        self, partitions: Sequence[int], job: str, group: str = "", *, proven: bool = False
    ) -> tuple[Progress | None, ...]:
        return self._at("progress_of", lambda: self._inner.progress_of(partitions, job, group, proven=proven))

    def offset_since(self, partition: int, timestamp_ms: int) -> int | None:
        return self._at("offset_since", lambda: self._inner.offset_since(partition, timestamp_ms))

    def dated_since(self, partition: int, timestamp_ms: int) -> tuple[int, int] | None:
        return self._at("dated_since", lambda: self._inner.dated_since(partition, timestamp_ms))

    def preflight(
        self, *, begun: bool = False, idempotence: str = REQUIRED, placement: Placement | None = None
    ) -> Preflight:
        return self._at(
            "preflight",
            lambda: self._inner.preflight(begun=begun, idempotence=idempotence, placement=placement),
        )

    def append_blind(self, partition: int, layout: Layout, chunk: Chunk, guarantee: str) -> Outcome:
        return self._at("append_blind", lambda: self._inner.append_blind(partition, layout, chunk, guarantee))

    def tombstones_kept_ms(self) -> int | None:
        return self._at("tombstones_kept_ms", self._inner.tombstones_kept_ms)

    def create(self, partitions: int, partitioner: Partitioner = DEFAULT_PARTITIONER) -> Layout:
        return self._at("create", lambda: self._inner.create(partitions, partitioner))

    def record_partitioner(self, partitioner: Partitioner) -> Partitioner:
        return self._at("record_partitioner", lambda: self._inner.record_partitioner(partitioner))

    def trim(self, partition: int, before_offset: int, *, dry_run: bool = False) -> Bounds:
        return self._at("trim", lambda: self._inner.trim(partition, before_offset, dry_run=dry_run))

    def layouts(self, known_epoch: int | None = None) -> Layouts:
        return self._at("layouts", lambda: self._inner.layouts(known_epoch))

    def check_partitions_may_be_added(self, partitions: int) -> None:
        self._at("check_partitions_may_be_added", lambda: self._inner.check_partitions_may_be_added(partitions))

    def begin_expansion(self, layout: Layout, partitions: int) -> Intent:
        return self._at("begin_expansion", lambda: self._inner.begin_expansion(layout, partitions))

    def end_partition(self, partition: int, intent: Intent) -> int:
        return self._at("end_partition", lambda: self._inner.end_partition(partition, intent))

    def add_partitions(self, intent: Intent) -> None:
        self._at("add_partitions", lambda: self._inner.add_partitions(intent))

    def finish_expansion(self, expansion: Expansion) -> None:
        self._at("finish_expansion", lambda: self._inner.finish_expansion(expansion))

    def record_plan(self, plan: Plan) -> Plan:
        return self._at("record_plan", lambda: self._inner.record_plan(plan))

    def plan(self, job: str) -> Plan | None:
        return self._at("plan", lambda: self._inner.plan(job))

    def record_completion(self, completion: Completion) -> Completion:
        return self._at("record_completion", lambda: self._inner.record_completion(completion))

    def completion(self, job: str) -> Completion | None:
        return self._at("completion", lambda: self._inner.completion(job))

    def entry(self, kind: EntryKind, job: str) -> str | None:
        return self._at("entry", lambda: self._inner.entry(kind, job))

    def put_entry(self, kind: EntryKind, job: str, text: str) -> str:
        return self._at("put_entry", lambda: self._inner.put_entry(kind, job, text))

    def remove_cancelled(self, run: str) -> None:
        self._at("remove_cancelled", lambda: self._inner.remove_cancelled(run))

    def forget(self, plan: Plan) -> None:
        return self._at("forget", lambda: self._inner.forget(plan))

    def jobs(self) -> tuple[str, ...]:
        return self._at("jobs", self._inner.jobs)

    def load_locks(self) -> LoadLocks:
        return self._at("load_locks", self._inner.load_locks)

    def put_load_locks(self, load_locks: LoadLocks) -> bool:
        return self._at("put_load_locks", lambda: self._inner.put_load_locks(load_locks))

    def _at(self, operation: str, call: Callable[[], Result]) -> Result:
        self.calls[operation] += 1
        self._strike(operation, When.BEFORE)
        result = call()
        self._strike(operation, When.AFTER)
        return result

    def _strike(self, operation: str, when: When) -> None:
        fault = self._faults.get((operation, self.calls[operation], when))
        if fault is not None:
            fault.action()
