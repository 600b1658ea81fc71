"""The in-memory backend: the executable definition of the protocol. For tests and for reading."""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Self

import pyarrow as pa

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.errors import LogNotFoundError, LogNotSharedError
from spark_cas.core.expansion import Expansion, Intent, Layouts
from spark_cas.core.expected_offsets import check_expected
from spark_cas.core.guarantee import AT_LEAST_ONCE, EXACTLY_ONCE, OFF, REQUIRED
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import (
    Appended,
    Conflict,
    Fenced,
    LayoutChanged,
    Outcome,
    ProgressLost,
    Refusal,
    Truncated,
)
from spark_cas.core.plan import (
    Completion,
    Layout,
    Plan,
    Progress,
    progress_lost,
    resume_offset,
    trimmed_unseen,
)
from spark_cas.core.records import RECORDS, fill_timestamps, first_since
from spark_cas.core.row_claims import check_rows
from spark_cas.log.protocol import Preflight


@dataclass
class _Partition:
    start_offset: int = 0
    end_offset: int = 0
    layout_epoch: int = 0
    """Whoever was granted a claim under an earlier one appends no more."""
    chunks: list[tuple[int, pa.Table]] = field(default_factory=list)
    """(base offset, records), in offset order."""
    ledger: dict[str, Progress] = field(default_factory=dict)

    def append(self, chunk: Chunk) -> Appended:
        count, base = chunk.records.num_rows, self.end_offset
        if count:
            self.chunks.append((base, fill_timestamps(chunk.records, chunk.time_ms)))
        self.end_offset = base + count
        return Appended(
            range=OffsetRange(base, base + count),
            count=count,
            timestamp_ms=chunk.time_ms if chunk.records.column("timestamp").null_count else None,
            start_offset=self.start_offset,
            has_offset=True,
            resolved=False,
        )


class MemoryLog:
    """A log that lives and dies with its object. One lock makes each append atomic."""

    def __init__(self, topic: str = "memory") -> None:
        self.topic = topic
        self._lock = Lock()
        self._layout: Layout | None = None
        self._partitions: list[_Partition] = []
        self._expansions: tuple[Expansion, ...] = ()
        self._pending: Intent | None = None
        self._plans: dict[str, Plan] = {}
        self._completions: dict[str, Completion] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def preflight(self, *, begun: bool = False, idempotence: str = REQUIRED) -> Preflight:  # noqa: ARG002
        self.layout()
        return Preflight(None, (), AT_LEAST_ONCE if idempotence == OFF else EXACTLY_ONCE)

    def tombstones_kept_ms(self) -> int | None:
        return None

    def create(self, partitions: int) -> Layout:
        with self._lock:
            if self._layout is None:
                self._layout = Layout(log_id=uuid.uuid4().hex, epoch=0, partitions=partitions)
                self._partitions = [_Partition() for _ in range(partitions)]
            return self._layout

    def layout(self) -> Layout:
        if self._layout is None:
            raise LogNotFoundError("there is no log here yet. Create it, or give the partition count when you write.")
        return self._layout

    def bounds(self, partition: int) -> Bounds:
        with self._lock:
            at = self._partition(partition)
            return Bounds(at.start_offset, at.end_offset)

    def bounds_of(self, partitions: Sequence[int], *, waiting: bool) -> tuple[Bounds, ...]:  # noqa: ARG002
        """What `bounds` says of each: all that is there is decided."""
        return tuple(map(self.bounds, partitions))

    def progress_of(self, partitions: Sequence[int], job: str) -> tuple[Progress | None, ...]:
        return tuple(self.progress(each, job) for each in partitions)

    def offset_since(self, partition: int, timestamp_ms: int) -> int | None:
        for base, records in self.read(partition, self.bounds(partition).range, ("timestamp",)):
            found = first_since(records, timestamp_ms)
            if found is not None:
                return base + found
        return None

    def claim(self, partition: int, plan: Plan) -> Claim | Refusal:
        changed = self._changed(plan.log_id, plan.layout_epoch)
        if changed is not None:
            return changed
        with self._lock:
            at = self._partition(partition)
            progress = at.ledger.get(plan.job)
            if progress_lost(plan, partition, progress, at.start_offset):
                return ProgressLost(plan.job)
            expected = resume_offset(plan, partition, progress)
            return Claim(partition, plan, expected, progress, at.end_offset)

    def append(self, claim: Claim, chunk: Chunk) -> Outcome:
        with self._lock:
            at = self._partition(claim.partition)
            if chunk.records.num_rows and at.layout_epoch > claim.plan.layout_epoch:
                return LayoutChanged(claim.plan.layout_epoch, at.layout_epoch)
            known = at.ledger.get(claim.plan.job)
            if known is not None and known != claim.progress:
                return Fenced(known.task)
            if known is None and self._lost(at, claim, chunk):
                return ProgressLost(claim.plan.job)
            refusal = self._check(at, claim, chunk) or check_rows(
                chunk, at.end_offset, lambda offset: claim.lets_expect(offset, at.end_offset.__le__)
            )
            if refusal is not None:
                return refusal
            appended = at.append(chunk)
            at.ledger[claim.plan.job] = claim.progress_after(chunk, appended.range)
            return appended

    def append_blind(self, partition: int, layout: Layout, chunk: Chunk, guarantee: str) -> Outcome:  # noqa: ARG002
        changed = self._changed(layout.log_id, layout.epoch)
        with self._lock:
            at = self._partition(partition)
            if at.layout_epoch > layout.epoch:
                return LayoutChanged(layout.epoch, at.layout_epoch)
            return changed or at.append(chunk)

    def read(
        self, partition: int, offsets: OffsetRange, columns: tuple[str, ...] = tuple(RECORDS.names)
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        with self._lock:
            at_now = self._partition(partition)
            Bounds(at_now.start_offset, at_now.end_offset).require(offsets)
            chunks = list(at_now.chunks)
        for base, records in chunks:
            part = OffsetRange(base, base + records.num_rows).intersect(offsets)
            if part is None:
                continue
            at = part.base_offset
            for batch in records.slice(at - base, len(part)).to_batches():
                yield at, batch.select(list(columns))
                at += batch.num_rows

    def progress(self, partition: int, job: str) -> Progress | None:
        with self._lock:
            return self._partition(partition).ledger.get(job)

    def trim(self, partition: int, before_offset: int) -> Bounds:
        with self._lock:
            at = self._partition(partition)
            Bounds(0, at.end_offset).require(OffsetRange(before_offset, before_offset))
            while len(at.chunks) > 1 and at.chunks[1][0] <= before_offset:
                at.chunks.pop(0)
                at.start_offset = at.chunks[0][0]
            kept = {job: progress for job, progress in at.ledger.items() if progress.end_offset > at.start_offset}
            at.ledger = kept
            return Bounds(at.start_offset, at.end_offset)

    def layouts(self, known_epoch: int | None = None) -> Layouts:  # noqa: ARG002
        """All there is: no other tool adds partitions."""
        return Layouts(self.layout(), self._expansions, self._pending)

    def begin_expansion(self, layout: Layout, partitions: int) -> Intent:
        with self._lock:
            for each in self._expansions[layout.epoch :]:
                return Intent(each.epoch, each.partitions, each.before)
            self._pending = self._pending or Intent(layout.epoch + 1, partitions, layout.partitions)
            return self._pending

    def end_partition(self, partition: int, intent: Intent) -> int:
        with self._lock:
            at = self._partition(partition)
            at.layout_epoch = max(at.layout_epoch, intent.epoch)
            return at.end_offset

    def add_partitions(self, intent: Intent) -> None:
        with self._lock:
            while len(self._partitions) < intent.partitions:
                self._partitions.append(_Partition())

    def finish_expansion(self, expansion: Expansion) -> None:
        with self._lock:
            layout = self.layout()
            if expansion.epoch == layout.epoch + 1:
                self._layout = Layout(layout.log_id, expansion.epoch, expansion.partitions)
                self._expansions += (expansion,)
                self._pending = None

    def record_plan(self, plan: Plan) -> Plan:
        with self._lock:
            return self._plans.setdefault(plan.job, plan)

    def plan(self, job: str) -> Plan | None:
        return self._plans.get(job)

    def record_completion(self, completion: Completion) -> Completion:
        with self._lock:
            return self._completions.setdefault(completion.job, completion)

    def completion(self, job: str) -> Completion | None:
        return self._completions.get(job)

    def jobs(self) -> tuple[str, ...]:
        return tuple(sorted(self._plans))

    def forget(self, plan: Plan) -> None:
        with self._lock:
            for at in self._partitions:
                at.ledger.pop(plan.job, None)
            self._completions.pop(plan.job, None)
            self._plans.pop(plan.job, None)

    def _partition(self, partition: int) -> _Partition:
        self.layout().require(partition)
        return self._partitions[partition]

    def _changed(self, log_id: str, epoch: int) -> LayoutChanged | None:
        layout = self._layout
        if layout is None or layout.log_id != log_id:
            raise LogNotSharedError("this is not the log that the plan was made for. Plan again.")
        if layout.epoch != epoch:
            return LayoutChanged(epoch, layout.epoch)
        return None if self._pending is None else LayoutChanged(epoch, self._pending.epoch)

    @staticmethod
    def _lost(at: _Partition, claim: Claim, chunk: Chunk) -> bool:
        """Whether rows that another attempt appended after the claim may have been trimmed with its progress."""
        expected = claim.expected_offset if chunk.records.num_rows else None
        return trimmed_unseen(claim.end_offset, expected, at.start_offset)

    @staticmethod
    def _check(at: _Partition, claim: Claim, chunk: Chunk) -> Conflict | Truncated | None:
        if chunk.records.num_rows == 0:
            return None
        expected = claim.expected_offset
        bounds = Bounds(at.start_offset, at.end_offset)
        next_record = expected if expected is not None and expected < at.end_offset else None
        return check_expected(expected, bounds, next_record)
