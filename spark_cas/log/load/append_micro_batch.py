"""Append the rows of a micro-batch exactly once, regardless of their order on replay.

A stream is a job that never completes. Its ledger entry in a partition describes the newest batch there. A replayed
batch resumes after the rows in that entry, or is only verified.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from spark_cas.core.chunks import Chunk, ChunkBuffer, ChunkLimits
from spark_cas.core.claim import Claim
from spark_cas.core.digest import joined_digest, multiset_digest
from spark_cas.core.errors import (
    BatchTooLargeError,
    CheckpointMismatchError,
    ConditionalLogError,
    InputChangedError,
    OptionError,
)
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.micro_batch import (
    Batch,
    batch_so_far,
    batch_text,
    begun_after,
    forgot_none,
    in_order,
    missing_rows,
)
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.outcome import Appended, Fenced, ProgressLost, error_of, raise_for_outcome
from spark_cas.core.partitioner import Placement
from spark_cas.core.plan import BatchProgress, PartitionResult, Plan, Progress
from spark_cas.core.records import RECORDS
from spark_cas.log import clock
from spark_cas.log.backend import Backend
from spark_cas.log.load.append_by_key import PartitionAppends
from spark_cas.log.load.append_rows import refuse_unknown_partition
from spark_cas.log.load.atomic_load import abort_group, aborted, decide_group, is_committed
from spark_cas.log.load.attempts import FENCED_RETRY_WAIT_SECONDS, await_other, refuse_second_task
from spark_cas.log.load.cancelling import TaskRun
from spark_cas.log.load.planning import ledger_in_time, pin_plan


def begin_stream(
    log: Backend,
    job: str,
    wanted: ExpectedOffsets,
    partition: int = 0,
    *,
    whole: bool = False,
    placement: Placement | None = None,
    first: Plan | None = None,
) -> Plan:
    """Return the plan of a stream, as `pin_plan` does; the first run also marks the ledger.

    The mark is an entry without rows in one partition. Without expected offsets, only the ledger shows whether a row
    was appended. While the mark exists, no later entry can have expired (`forgot_none`). ``partition`` gets the mark.

    Raises the errors of `pin_plan` and of a rejected append.
    """
    plan = pin_plan(log, job, wanted, stream=True, whole=whole, placement=placement, first=first)
    if not plan.rejoined and not plan.checked:
        claim = PartitionAppends(log, partition).claim(plan)
        if claim.progress is None:
            raise_for_outcome(log.append(claim, _chunk(_NO_ROWS, joined_digest(), claim, None, "begin/0")), partition)
    return plan


def ledger_before(log: Backend, plan: Plan) -> tuple[Progress, ...]:
    """Return the ledger entries of a stream in all partitions before it appends a batch, for `load_batch`.

    The result is empty for a new stream, for atomic batches, and if the store or brokers do not answer in time. A new
    stream has no entries. An atomic batch becomes visible in no partition if one rejects it. If the log needs one
    request per partition, the result has only the entries read within `Timing.best_effort`. Raises LogNotFoundError,
    ChunkDamagedError, FormatError.
    """
    if plan.whole or not plan.rejoined:
        return ()
    return tuple(each for each in ledger_in_time(log, plan) if each is not None)


def load_batch(
    log: Backend,
    plan: Plan,
    batch: Batch,
    rows: Iterable[tuple[int, pa.RecordBatch]],
    *,
    task: str,
    limits: ChunkLimits,
    order_by: Sequence[str] | None = None,
    has_end: bool = True,
    ledger: Iterable[Progress] = (),
    fenced_retry_wait_seconds: float = FENCED_RETRY_WAIT_SECONDS,
    run: TaskRun | None = None,
) -> tuple[PartitionResult, ...]:
    """Append the rows of a task's micro-batch that the log does not hold yet.

    If the rows of a partition fit the limits, they are one chunk, in the order of `in_order`. Otherwise ``order_by``
    must fix their order, so that the rows of a killed attempt are a prefix, after which the task resumes. The task
    keeps all rows in memory, and appends none before it has read all of its input. If the plan has a commit group
    (`with_group`), the rows become visible when the batch is complete.

    Without ``has_end``, an attempt may have been cut off, and the log may hold any part of the rows. Then the next
    attempt reads them from the log, and appends the others.

    The arguments are those of `append_rows`, except:

    Args:
        rows: The rows, as (partition, rows in `RECORDS`, maybe with the column `OFFSET`).
        order_by: The columns that fix the order; empty if the input always has the same order; None for no fixed
            order.
        ledger: The result of `ledger_before`. It rejects a wrong batch before any append in any partition.

    Raises:
        BatchTooLargeError: The rows do not fit into one chunk and have no fixed order. Nothing was appended.
        CheckpointMismatchError: The batch is not the next one of the stream.
        JobMismatchError: Another streaming query uses the job name.
        OptionError: An earlier attempt had a fixed order, and this one has none.
    """
    collected = _collect(plan, batch, rows, limits, order_by)
    for each in ledger if collected else ():
        batch_so_far(batch, plan.job, each.partition, each)
    results = []
    for partition, records in sorted(collected.items()):
        load = _BatchLoad(log, batch, partition, task, has_end, fenced_retry_wait_seconds, run or TaskRun())
        load.claim_of(plan)
        results.append(load.append(in_order(records, order_by), limits, ordered=order_by is not None))
    return tuple(results)


def complete_batch(log: Backend, plan: Plan, batch: Batch, results: Sequence[PartitionResult]) -> None:
    """Complete a batch after all of its tasks have ended; an atomic batch becomes visible.

    Raises the errors of `require_no_other_rows`, and FencedError if another process aborted the batch.
    """
    require_no_other_rows(log, plan.job, batch, results, whole=plan.whole)
    if plan.group:
        decide_group(log, plan, results)


def refused_batch(log: Backend, job: str, batch: Batch, refusal: ConditionalLogError) -> ConditionalLogError:
    """Return the error of a rejected batch, with the rows that its other tasks appended."""
    try:
        ledger = log.progress_of(range(log.layout().partitions), job)
    except ConditionalLogError:
        ledger = None
    return refusal.with_message(f"{refusal.message} {batch_text(batch, ledger)}", next_offsets=None)


def require_no_other_rows(
    log: Backend, job: str, batch: Batch, results: Sequence[PartitionResult], *, whole: bool = False
) -> None:
    """Raise an error if a partition holds rows of the batch that no task had.

    A killed attempt may have put a row into a partition that gets none now, because this attempt put the row into
    another partition. The ledger entries of the partitions with rows cannot show this. Unless the batch is atomic,
    this check completes it. ``results`` are those of all tasks, and an atomic batch is ``whole``.

    Raises:
        InputChangedError: A partition holds rows of the batch that no task had.
        CheckpointMismatchError: A partition holds rows of a later batch.
    """
    brought = {result.progress.partition for result in results}
    others = [partition for partition in range(log.layout().partitions) if partition not in brought]
    ledger = log.progress_of(others, job)
    doubt = "Rows that this attempt appended are not visible."
    if not whole:
        doubt = (
            "Rows of the batch for other partitions may have been appended before this check, so the log may have "
            f"rows twice. Search for duplicates. {batch_text(batch, [*(each.progress for each in results), *ledger])}"
        )
    for existing in ledger:
        held = existing.batch if existing else None
        if existing is None or held is None or held.query != batch.query or held.id < batch.id:
            continue
        here = f"partition {existing.partition}: the log holds rows of batch {held.id} of job {job!r}"
        if held.id > batch.id:
            raise CheckpointMismatchError(
                f"{here}, and the query has just written batch {batch.id}, without any row for this partition: its "
                f"checkpoint is older than the log, or was reset. {doubt} Restore the newest checkpoint. "
                f"{_OR_NEW_JOB}",
                partition=existing.partition,
                job=job,
            )
        raise InputChangedError(
            f"{here}, but the replay has none for this partition. {doubt} {_FIX}",
            partition=existing.partition,
            job=job,
        )


_OR_NEW_JOB = "Or give the query another job name, and start its source after the rows that the log has."

_FIX = (
    f"A replay must have the same rows: the source and the query must return them again from the same offsets. Undo "
    f"the change. {_OR_NEW_JOB}"
)

_NO_ROWS = pa.Table.from_batches([], RECORDS)


def _collect(
    plan: Plan,
    batch: Batch,
    rows: Iterable[tuple[int, pa.RecordBatch]],
    limits: ChunkLimits,
    order_by: Sequence[str] | None,
) -> dict[int, pa.Table]:
    """Return all rows by partition; fail early if those of one exceed a chunk and have no fixed order."""
    tables: dict[int, list[pa.Table]] = {}
    buffers: dict[int, ChunkBuffer] = {}
    for partition, records in rows:
        if records.num_rows == 0:
            continue
        if partition not in buffers:
            refuse_unknown_partition(partition, plan.partitions)
            buffers[partition], tables[partition] = ChunkBuffer(limits, partition), []
        full, buffer = tables[partition], buffers[partition]
        first_row = sum(table.num_rows for table in full) + buffer.records
        for table in buffer.add(records, 0.0, first_row):
            if order_by is None:
                raise BatchTooLargeError(
                    f"partition {partition}: the rows of batch {batch.id} do not fit into one chunk "
                    f"({limits.max_records} records, {limits.max_bytes} bytes). Several chunks need a fixed order, "
                    f"because a replay resumes after the existing ones. Nothing was appended now. Add the "
                    f"option orderBy, such as orderBy=timestamp, or raise maxRecordsPerChunk or maxBytesPerChunk. A "
                    f"lower maxOffsetsPerTrigger of the source makes later batches smaller.",
                    partition=partition,
                )
            full.append(table)
    return {partition: pa.concat_tables([*full, buffers[partition].take()]) for partition, full in tables.items()}


@dataclass(slots=True)
class _BatchLoad:
    """The rows of a task's micro-batch for one partition."""

    _log: Backend
    _batch: Batch
    _partition: int
    _task: str
    _has_end: bool
    _wait_seconds: float
    _run: TaskRun
    _begun_after_ms: int = field(init=False)
    _claim: Claim = field(init=False)

    def append(self, records: pa.Table, limits: ChunkLimits, *, ordered: bool) -> PartitionResult:
        """Append the rows of the batch that the partition does not hold yet."""
        held = self._held(self._claim.progress)
        if held.rows and self._claim.progress:
            refuse_second_task(self._partition, self._task, self._claim.progress.task)
        if held.complete and self._claim.progress and (held.uncertain_from is None or _is_same(held, records)):
            self._require_same(held, records)
            return PartitionResult(self._claim.progress, held.rows, 0)
        resolved = 0
        for chunk in self._chunks(self._missing(held, records, ordered=ordered), held, limits):
            outcome = self._log.append(self._claim, chunk)
            match outcome:
                case Appended():
                    resolved += outcome.resolved
                    self._claim = self._claim.after(chunk, outcome.range)
                    self._run.add(self._partition, outcome, chunk.records)
                case Fenced(by):
                    refuse_second_task(self._partition, self._task, by)
                    return PartitionResult(self._other(outcome, records), held.rows, resolved)
                case _:
                    raise error_of(outcome, self._partition)
        if self._claim.progress is None:
            msg = "a batch with rows leaves progress"
            raise AssertionError(msg)
        return PartitionResult(self._claim.progress, held.rows, resolved)

    def claim_of(self, plan: Plan) -> None:
        """Claim the partition. A missing ledger entry is accepted if one of this batch cannot have expired."""
        claim = self._log.claim(self._partition, plan)
        ledger: list[Progress | None] = [claim.progress] if isinstance(claim, Claim) else []
        if isinstance(claim, ProgressLost):
            ledger = [self._log.progress(partition, plan.job) for partition in range(plan.partitions)]
            if forgot_none(self._batch, plan, ledger, clock.now_ms(), self._log.unexpired_ms):
                claim = self._log.claim(self._partition, replace(plan, rejoined=False))
        if not isinstance(claim, Claim):
            raise error_of(claim, self._partition)
        self._claim, self._begun_after_ms = claim, begun_after(self._batch, plan, ledger)

    def _held(self, progress: Progress | None) -> BatchProgress:
        return batch_so_far(self._batch, self._claim.plan.job, self._partition, progress)

    def _missing(self, held: BatchProgress, records: pa.Table, *, ordered: bool) -> pa.Table:
        """Verify the rows that the partition holds, and return the remaining ones."""
        if not held.rows:
            return records
        if held.uncertain_from is not None and not (ordered and _is_same(held, records.slice(0, held.rows))):
            return self._missing_of_any(held, records, held.uncertain_from)
        if not ordered:
            raise OptionError(
                f"partition {self._partition} has the first {held.rows} rows of batch {held.id}. An earlier attempt "
                f"had a fixed order (option orderBy, or route within foreachBatch), and this one has none. Nothing "
                f"more was appended. Set orderBy as before.",
                partition=self._partition,
            )
        if records.num_rows <= held.rows:
            raise self._changed(held, records)
        self._require_same(held, records.slice(0, held.rows))
        return records.slice(held.rows)

    def _missing_of_any(self, held: BatchProgress, records: pa.Table, first: int) -> pa.Table:
        """Read the existing rows, which may be any rows of the batch, from the log. Return the remaining ones."""
        plan, progress = self._claim.plan, self._claim.progress
        if plan.group and is_committed(self._log, plan):
            raise self._changed(held, records)
        if plan.group:
            # They are not visible, so they cannot be read. The next attempt begins another group.
            abort_group(self._log, plan)
            raise aborted(plan)
        end_offset = first if progress is None else progress.end_offset
        at = self._log.bounds(self._partition).range.intersect(OffsetRange(first, end_offset))
        read = self._log.read(self._partition, at, tuple(RECORDS.names)) if at else ()
        newest = pa.Table.from_batches((each.select(RECORDS.names) for _, each in read), RECORDS)
        missing = missing_rows(records, newest, held)
        if missing is None:
            raise self._changed(held, records)
        return missing

    def _chunks(self, records: pa.Table, held: BatchProgress, limits: ChunkLimits) -> Iterator[Chunk]:
        """Yield the chunks in order; the caller updates the claim before it requests the next one."""
        buffer = ChunkBuffer(limits, self._partition)
        cut = [full for each in records.to_batches() for full in buffer.add(each, 0.0, held.rows)]
        cut.append(buffer.take())
        for number, part in enumerate(cut, 1):
            digest = multiset_digest(part)
            complete = number == len(cut)
            uncertain_from = held.uncertain_from
            first_offset = held.first_offset if held.rows else self._claim.end_offset
            if self._has_end:
                uncertain_from = None if complete else uncertain_from
            elif uncertain_from is None:
                uncertain_from = first_offset
            held = replace(
                held,
                rows=held.rows + part.num_rows,
                digest=joined_digest(held.digest, digest),
                complete=complete,
                begun_after_ms=self._begun_after_ms,
                uncertain_from=uncertain_from,
                first_offset=first_offset,
            )
            yield _chunk(part, digest, self._claim, held, self._task)

    def _other(self, fenced: Fenced, records: pa.Table) -> Progress:
        """Wait until the attempt that took over has completed the same rows, and return its progress."""
        progress = await_other(
            self._log,
            self._claim,
            fenced,
            done=lambda result: self._held(result).complete,
            missing=lambda result: not self._held(result).complete,
            wait_seconds=self._wait_seconds,
        )
        held = self._held(progress)
        if held.uncertain_from is not None and not _is_same(held, records):
            raise error_of(fenced, self._partition)
        self._require_same(held, records)
        return progress

    def _require_same(self, held: BatchProgress, records: pa.Table) -> None:
        if not _is_same(held, records):
            raise self._changed(held, records)

    def _changed(self, held: BatchProgress, records: pa.Table) -> InputChangedError:
        return InputChangedError(
            f"partition {self._partition}: the replay of batch {self._batch.id} of job {self._claim.plan.job!r} has "
            f"other rows. The log has {held.rows} rows of the batch, and they are not among the {records.num_rows} "
            f"rows of the replay, or cannot be distinguished from records of other writers. Nothing more was "
            f"appended. {_FIX}",
            partition=self._partition,
            job=self._claim.plan.job,
        )


def _is_same(held: BatchProgress, records: pa.Table) -> bool:
    return (held.rows, held.digest) == (records.num_rows, multiset_digest(records))


def _chunk(records: pa.Table, digest: str, claim: Claim, batch: BatchProgress | None, task: str) -> Chunk:
    before = claim.progress
    return Chunk(
        records=records,
        rows=(before.rows if before else 0) + records.num_rows,
        digest=joined_digest(before.digest, digest) if before else digest,
        complete=False,
        task=task,
        time_ms=clock.now_ms(),
        batch=batch,
    )
