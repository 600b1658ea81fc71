"""In-memory backend: a reference implementation of the protocol for tests."""

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from threading import Lock

import pyarrow as pa

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.errors import LogNotFoundError, LogNotSharedError, UndecidedError
from spark_cas.core.expansion import Expansion, Intent, Layouts
from spark_cas.core.expected_offsets import check_expected
from spark_cas.core.group import ABORTED, outcome_from_json, takes_place
from spark_cas.core.load_locks import LoadLocks
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import (
    Conflict,
    Fenced,
    LayoutChanged,
    Outcome,
    ProgressLost,
    Refusal,
    Truncated,
)
from spark_cas.core.partitioner import DEFAULT_PARTITIONER, Partitioner
from spark_cas.core.plan import (
    Layout,
    Plan,
    Progress,
    input_entry,
    progress_lost,
    resume_offset,
    trimmed_unseen,
)
from spark_cas.core.recorded_fields import to_json
from spark_cas.core.records import RECORDS
from spark_cas.core.row_claims import check_rows
from spark_cas.log import clock
from spark_cas.log.backend import Backend
from spark_cas.log.deadline import wait_for_others
from spark_cas.log.protocol import EntryKind
from tests.support.memory_partition import Partition


class MemoryLog(Backend):
    """A log that exists as long as this object. A single lock makes each append atomic."""

    def __init__(self, topic: str = "memory") -> None:
        self.topic = topic
        self._lock = Lock()
        self._layout: Layout | None = None
        self._partitions: list[Partition] = []
        self._expansions: tuple[Expansion, ...] = ()
        self._pending: Intent | None = None
        self._partitioner = DEFAULT_PARTITIONER
        self._entries: dict[tuple[EntryKind, str], str] = {}
        self._load_locks = LoadLocks()

    def create(self, partitions: int, partitioner: Partitioner = DEFAULT_PARTITIONER) -> Layout:
        with self._lock:
            if self._layout is None:
                self._partitioner = partitioner
                self._layout = Layout(log_id=uuid.uuid4().hex, epoch=0, partitions=partitions)
                self._partitions = [Partition() for _ in range(partitions)]
            return self._layout

    def layout(self) -> Layout:
        if self._layout is None:
            raise LogNotFoundError("there is no log here yet. Create it, or give the partition count when you write.")
        return self._layout

    def bounds_of(
        self,
        partitions: Sequence[int],
        *,
        waiting: bool,
        at_least: Sequence[int] = (),
    ) -> tuple[Bounds, ...]:
        """Return the bounds of each partition. Appended rows are final at once, so the options have no effect."""
        with self._lock:
            return tuple(self._partition(each).bounds() for each in partitions)

    def progress_of(
        self,
        partitions: Sequence[int],
        job: str,
        group: str = "",
        *,
        proven: bool = False,
    ) -> tuple[Progress | None, ...]:
        with self._lock:
            return tuple(self._partition(each).progress(job, group) for each in partitions)

    def claim(self, partition: int, plan: Plan) -> Claim | Refusal:
        changed = self._changed(plan.log_id, plan.layout_epoch)
        if changed is not None:
            return changed
        with self._lock:
            at = self._partition(partition)
            progress = at.progress(plan.job, plan.group)
            if progress_lost(plan, partition, progress, at.start_offset) and not self._is_unfinished(plan.job, plan):
                return ProgressLost(plan.job)
            expected = resume_offset(plan, partition, progress)
            return Claim(partition, plan, expected, progress, at.bounds(plan.group).end_offset)

    def append(self, claim: Claim, chunk: Chunk) -> Outcome:
        plan = claim.plan

        def refuse(at: Partition) -> Refusal | None:
            return self._refuse(at, claim, chunk)

        def append(at: Partition) -> Outcome:
            if plan.group:
                return at.append_undecided(claim, chunk)
            appended = at.append(chunk)
            at.ledger[plan.job] = claim.progress_after(chunk, appended.range)
            return appended

        group = plan.group if takes_place(plan, chunk) else None
        return self._once_decided(claim.partition, group, refuse, append)

    def _refuse(self, at: Partition, claim: Claim, chunk: Chunk) -> Refusal | None:
        """Validate the append against the partition as the writers of the claim's group read it."""
        plan = claim.plan
        if takes_place(plan, chunk) and at.layout_epoch > plan.layout_epoch:
            return LayoutChanged(plan.layout_epoch, at.layout_epoch)
        known = at.progress(plan.job, plan.group)
        decided = plan.group and ("outcome", plan.group) in self._entries
        if decided or (known is not None and known != claim.progress):
            return Fenced(known.task if known else None)
        if known is None and self._lost(at, claim, chunk):
            return ProgressLost(plan.job)
        records_end = at.records_end(plan.group)
        return self._check(at, claim, chunk) or check_rows(
            chunk,
            at.bounds(plan.group).end_offset,
            lambda offset: claim.allows_expected_offset(offset, records_end.__le__),
        )

    def _once_decided(
        self,
        partition: int,
        group: str | None,
        refuse: Callable[[Partition], Refusal | None],
        append: Callable[[Partition], Outcome],
    ) -> Outcome:
        """Append after all other groups are committed or aborted. If ``group`` is None, the append adds no record.

        If ``refuse`` rejects the append, return that rejection at once. An append without records does not wait for
        other groups. If the time limit of another group has passed, abort that group.
        """
        wait = wait_for_others(self.patience_seconds, f"appending to partition {partition}")
        while True:
            with self._lock:
                at = self._partition(partition)
                refusal = refuse(at)
                if refusal is not None:
                    return refusal
                ahead = at.undecided if group is not None and at.of(group) is None else None
                if ahead and clock.now_ms() >= ahead.decide_by_ms:
                    self._decide(ahead.group, to_json(ABORTED))
                    continue
                if ahead is None:
                    return append(at)
            if not wait.again("an atomic load is open"):
                raise UndecidedError(
                    f"partition {partition}: an atomic load is open, and blocks this append. No row of this chunk is "
                    f"in the log. Run the same job again after the load is complete.",
                    partition=partition,
                )

    def _decide(self, group: str, text: str) -> str:
        """Record the outcome of a group in all partitions, unless one is recorded. Return the recorded outcome."""
        held = self._entries.setdefault(("outcome", group), text)
        for number, at in enumerate(self._partitions):
            at.decide(number, group, outcome_from_json(held, group))
        return held

    def append_blind(self, partition: int, layout: Layout, chunk: Chunk, guarantee: str) -> Outcome:
        changed = self._changed(layout.log_id, layout.epoch)

        def refuse(at: Partition) -> Refusal | None:
            if at.layout_epoch > layout.epoch:
                return LayoutChanged(layout.epoch, at.layout_epoch)
            return changed

        return self._once_decided(partition, "", refuse, lambda at: at.append(chunk))

    def read(
        self, partition: int, offsets: OffsetRange, columns: tuple[str, ...] = tuple(RECORDS.names)
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        with self._lock:
            at_now = self._partition(partition)
            at_now.bounds().require(offsets)
            chunks = list(at_now.chunks)
        for base, records in chunks:
            part = OffsetRange(base, base + records.num_rows).intersect(offsets)
            if part is None:
                continue
            at = part.base_offset
            for batch in records.slice(at - base, len(part)).to_batches():
                yield at, batch.select(list(columns))
                at += batch.num_rows

    def trim(self, partition: int, before_offset: int, *, dry_run: bool = False) -> Bounds:
        with self._lock:
            at = self._partition(partition)
            bounds = at.bounds()
            Bounds(0, bounds.end_offset).require(OffsetRange(before_offset, before_offset))
            if dry_run:
                starts = [base for base, *_ in at.chunks if base <= before_offset]
                return Bounds(max([bounds.start_offset, *starts]), bounds.end_offset)
            while len(at.chunks) > 1 and at.chunks[1][0] <= before_offset:
                at.chunks.pop(0)
                at.start_offset = at.chunks[0][0]
            at.ledger = {
                job: progress
                for job, progress in at.ledger.items()
                if progress.end_offset > at.start_offset or self._is_unfinished(job)
            }
            return at.bounds()

    def layouts(self, known_epoch: int | None = None) -> Layouts:
        """Return all layouts and expansions. No other tool adds partitions to this log."""
        return Layouts(self.layout(), self._expansions, self._pending, self._partitioner)

    def begin_expansion(self, layout: Layout, partitions: int) -> Intent:
        with self._lock:
            for each in self._expansions[layout.epoch :]:
                return Intent(each.epoch, each.partitions, each.before)
            self._pending = self._pending or Intent(layout.epoch + 1, partitions, layout.partitions)
            return self._pending

    def end_partition(self, partition: int, intent: Intent) -> int:
        with self._lock:
            at = self._partition(partition)
            if at.undecided:
                self._decide(at.undecided.group, to_json(ABORTED))  # its layout ends here
            at.layout_epoch = max(at.layout_epoch, intent.epoch)
            return at.end_offset

    def finish_expansion(self, expansion: Expansion) -> None:
        with self._lock:
            layout = self.layout()
            if expansion.epoch == layout.epoch + 1:
                self._partitions += [Partition() for _ in range(len(self._partitions), expansion.partitions)]
                self._layout = Layout(layout.log_id, expansion.epoch, expansion.partitions)
                self._expansions += (expansion,)
                self._pending = None

    def entry(self, kind: EntryKind, job: str) -> str | None:
        return self._entries.get((kind, job))

    def put_entry(self, kind: EntryKind, job: str, text: str) -> str:
        with self._lock:
            return self._decide(job, text) if kind == "outcome" else self._entries.setdefault((kind, job), text)

    def remove_cancelled(self, run: str) -> None:
        with self._lock:
            self._entries.pop(("cancelled", run), None)

    def jobs(self) -> tuple[str, ...]:
        return tuple(sorted(job for kind, job in tuple(self._entries) if kind == "plan"))

    def forget(self, plan: Plan) -> None:
        with self._lock:
            for at in self._partitions:
                at.ledger.pop(plan.job, None)
            self._entries.pop(("completion", plan.job), None)
            self._entries.pop(("input", input_entry(plan.job, plan.input)), None)
            self._entries.pop(("plan", plan.job), None)

    def load_locks(self) -> LoadLocks:
        return self._load_locks

    def put_load_locks(self, load_locks: LoadLocks) -> bool:
        with self._lock:
            follows = load_locks.number == self._load_locks.number + 1
            if follows:
                self._load_locks = load_locks
            return follows

    def _partition(self, partition: int) -> Partition:
        self.layout().require(partition)
        return self._partitions[partition]

    def _changed(self, log_id: str, epoch: int) -> LayoutChanged | None:
        layout = self._layout
        if layout is None or layout.log_id != log_id:
            raise LogNotSharedError("this is not the log that the plan was made for. Plan again.")
        if layout.epoch != epoch:
            return LayoutChanged(epoch, layout.epoch)
        return None if self._pending is None else LayoutChanged(epoch, self._pending.epoch)

    def _lost(self, at: Partition, claim: Claim, chunk: Chunk) -> bool:
        """Return whether trimming may have removed rows that another attempt appended after the claim."""
        expected = claim.expected_offset if chunk.records.num_rows else None
        lost = trimmed_unseen(claim.end_offset, expected, at.start_offset)
        return lost and not self._is_unfinished(claim.plan.job, claim.plan)

    def _is_unfinished(self, job: str, plan: Plan | None = None) -> bool:
        """Return whether a job has a recorded plan, which is ``plan`` if given, and no completion.

        A trim keeps the ledger entry of such a job.
        """
        recorded = self._entries.get(("plan", job))
        if recorded is None or ("completion", job) in self._entries:
            return False
        return plan is None or json.loads(recorded)["pinned_by"] == plan.pinned_by

    @staticmethod
    def _check(at: Partition, claim: Claim, chunk: Chunk) -> Conflict | Truncated | None:
        if not takes_place(claim.plan, chunk):
            return None
        expected = claim.expected_offset
        bounds = at.bounds(claim.plan.group)
        records_end = at.records_end(claim.plan.group)
        next_record = expected if expected is not None and expected < records_end else None
        return check_expected(expected, bounds, next_record)
