"""The batch: a task's rows of a micro-batch go into their partitions exactly once, in whatever order they come again.

As `spark_cas.log.load.load_rows`, it runs over the protocol alone. A stream is a job that never completes: its ledger
entry in a partition tells of its newest batch there, and a batch that comes again is resumed or verified by that.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from spark_cas.core.chunks import Chunk, ChunkBuffer, ChunkLimits
from spark_cas.core.claim import Claim
from spark_cas.core.errors import (
    BatchTooLargeError,
    CheckpointMismatchError,
    ConditionalLogError,
    InputChangedError,
    OptionError,
    StorageError,
)
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.micro_batch import Batch, batch_so_far, begun_after, forgot_none, in_order, told_batch
from spark_cas.core.multiset_digest import joined_digest, multiset_digest
from spark_cas.core.outcome import Appended, Fenced, ProgressLost, Refusal
from spark_cas.core.partitioner import Placement
from spark_cas.core.plan import BatchProgress, PartitionResult, Plan, Progress
from spark_cas.core.records import RECORDS
from spark_cas.core.refusal import error_of, raise_for_outcome
from spark_cas.log import clock
from spark_cas.log.backend import Backend
from spark_cas.log.load.attempts import FENCED_WAIT_SECONDS, await_other, refuse_second_task
from spark_cas.log.load.load_rows import refuse_unknown_partition
from spark_cas.log.load.planning import pin_plan
from spark_cas.log.load.whole_load import decide_group
from spark_cas.log.patience import within

_LOOK_SECONDS = 0.5
"""No batch is held up for longer by the look before it, as by an open transaction of a dead task."""


def begin_stream(
    log: Backend,
    job: str,
    wanted: ExpectedOffsets,
    partition: int = 0,
    *,
    whole: bool = False,
    placement: Placement | None = None,
) -> Plan:
    """The plan of a stream, as `pin_plan`; the first time, the ledger is marked.

    The mark, in any partition, is an entry without rows. Without a check nothing but the ledger tells whether a row
    was appended: as long as the mark is there, nothing was forgotten (`forgot_none`).

    Raises what `pin_plan` raises; the error of a refused append.
    """
    plan = pin_plan(log, job, wanted, stream=True, whole=whole, placement=placement)
    if not plan.rejoined and not plan.checked:
        claim = log.claim(partition, plan)
        if not isinstance(claim, Claim):
            raise error_of(claim, partition)
        if claim.progress is None:
            raise_for_outcome(log.append(claim, _chunk(_NO_ROWS, joined_digest(), claim, None, "begin/0")), partition)
    return plan


def ledger_before(log: Backend, plan: Plan) -> tuple[Progress, ...]:
    """What the ledger tells of a stream in all partitions before a batch is appended; nothing where it is undecided.

    For `load_batch`. Of a stream that is new there is nothing; and a batch as a whole, where one partition refuses
    it, is visible in none. Where each partition takes requests of its own it is looked as far as one comes in a short
    time. Raises LogNotFoundError, ChunkDamagedError, FormatError.
    """
    if plan.whole or not plan.rejoined:
        return ()
    try:
        with within(_LOOK_SECONDS):
            found = [each for at in _looks(log, plan.partitions) for each in log.progress_of(at, plan.job)]
    except StorageError:
        return ()
    return tuple(each for each in found if each is not None)


def _looks(log: Backend, partitions: int) -> Iterator[range]:
    """The partitions that are asked for together, until the time of a look is over."""
    ends = time.monotonic() + _LOOK_SECONDS
    each = partitions if log.ledger_at_once else 1
    for at in range(0, partitions, each):
        if time.monotonic() < ends:
            yield range(at, at + each)


def load_batch(
    log: Backend,
    plan: Plan,
    batch: Batch,
    rows: Iterable[tuple[int, pa.RecordBatch]],
    *,
    task: str,
    limits: ChunkLimits,
    order_by: Sequence[str] | None = None,
    ledger: Iterable[Progress] = (),
    fenced_wait_seconds: float = FENCED_WAIT_SECONDS,
) -> tuple[PartitionResult, ...]:
    """Append a task's rows of a batch, given as (partition, records in `RECORDS`), as far as they are not there.

    The rows of a partition are one chunk, in the order in which they come, where they fit the limits. Where they do
    not, ``order_by`` fixes their order, so that what a killed attempt left is a prefix to go on from; no columns at
    all say that they come in one order by themselves. ``task`` is ``run/number``. By ``ledger`` (`ledger_before`)
    a batch that may not come is refused before any of it is appended, wherever its rows are. All rows are in memory,
    and none is appended before the last has come. Returns what each partition that got rows now holds. Where the
    plan tells of a group (`with_group`), that is visible once the batch is complete.

    Raises BatchTooLargeError before anything is appended; CheckpointMismatchError, JobMismatchError when the batch is
    not the one that may come next; InputChangedError when the rows that are there are not those of this batch; and as
    `load_rows` a RefusedError, NotRoutedError, UnknownOutcomeError, FencedError.
    """
    collected = _collect(plan, batch, rows, limits, order_by)
    for each in ledger if collected else ():
        batch_so_far(batch, plan.job, each.partition, each)
    results = []
    for partition, records in sorted(collected.items()):
        load = _BatchLoad(log, plan, batch, partition, task=task, fenced_wait_seconds=fenced_wait_seconds)
        results.append(
            load.run(in_order(records, order_by) if order_by else records, limits, ordered=order_by is not None)
        )
    return tuple(results)


def complete_batch(log: Backend, plan: Plan, batch: Batch, results: Sequence[PartitionResult]) -> None:
    """All tasks of a batch have ended, with ``results``. One that is appended as a whole becomes visible.

    Raises InputChangedError, CheckpointMismatchError where a partition holds rows of it that no task brought;
    FencedError where somebody aborted the batch.
    """
    _require_all(log, plan, batch, results)
    if plan.group:
        decide_group(log, plan, results)


def refused_batch(log: Backend, job: str, batch: Batch, refusal: ConditionalLogError) -> ConditionalLogError:
    """The error of a batch some of whose tasks were refused: with what the others have appended of it."""
    try:
        ledger = log.progress_of(range(log.layout().partitions), job)
    except ConditionalLogError:
        ledger = None
    return type(refusal)(f"{refusal.message} {told_batch(batch, ledger)}")


def _require_all(log: Backend, plan: Plan, batch: Batch, results: Sequence[PartitionResult]) -> None:
    """No partition may hold rows of a batch that no task brought.

    An attempt that was killed may have put a row where this one has none, while a task of this one put it elsewhere:
    the partitions where it came again, or was new, do not tell.
    """
    brought = {result.progress.partition for result in results}
    others = [partition for partition in range(log.layout().partitions) if partition not in brought]
    ledger = log.progress_of(others, plan.job)
    doubt = _NOT_VISIBLE
    if not plan.whole:
        doubt = f"{_DOUBT} {told_batch(batch, [*(each.progress for each in results), *ledger])}"
    for found in ledger:
        held = found.batch if found else None
        if found is None or held is None or held.query != batch.query or held.id < batch.id:
            continue
        here = f"partition {found.partition}: the log holds rows of batch {held.id} of job {plan.job!r}"
        if held.id > batch.id:
            raise CheckpointMismatchError(
                f"{here}, and the query has just written batch {batch.id}, without any row for this partition: its "
                f"checkpoint is older than the log, or was reset. {doubt} Restore the newest checkpoint; or give "
                f"the query another job name and start its source behind what the log already holds."
            )
        raise InputChangedError(f"{here}, which came again without any for this partition. {doubt} {_MEND}")


_DOUBT = (
    "What the batch brought for other partitions may have been appended before this was seen, so rows may be there "
    "twice: look for them."
)

_NOT_VISIBLE = "What it brought now and was not there before is not visible."

_MEND = (
    "A batch must bring the same rows when it comes again: its source and the query have "
    "to give them anew from the same offsets. Mend what changed, or give the query another job name and start its "
    "source behind what the log already holds."
)

_NO_ROWS = pa.Table.from_batches([], RECORDS)


def _collect(
    plan: Plan,
    batch: Batch,
    rows: Iterable[tuple[int, pa.RecordBatch]],
    limits: ChunkLimits,
    order_by: Sequence[str] | None,
) -> dict[int, pa.Table]:
    """All rows by partition; refused as soon as those of one are too many to be a chunk and have no fixed order."""
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
                    f"({limits.max_records} records, {limits.max_bytes} bytes), and in several chunks they could not "
                    f"be told apart from their first half when they come again in another order. Nothing of them was "
                    f"appended. Give option orderBy, such as 'timestamp', which fixes their order; or raise "
                    f"maxRecordsPerChunk or maxBytesPerChunk. A lower maxOffsetsPerTrigger of the source makes later "
                    f"batches smaller."
                )
            full.append(table)
    return {partition: pa.concat_tables([*full, buffers[partition].take()]) for partition, full in tables.items()}


class _BatchLoad:
    """The rows of one task's batch for one partition."""

    def __init__(
        self, log: Backend, plan: Plan, batch: Batch, partition: int, *, task: str, fenced_wait_seconds: float
    ) -> None:
        self._log = log
        self._batch = batch
        self._partition = partition
        self._task = task
        self._wait_seconds = fenced_wait_seconds
        claim = self._claimed(plan)
        if not isinstance(claim, Claim):
            raise error_of(claim, partition)
        self._claim = claim

    def run(self, records: pa.Table, limits: ChunkLimits, *, ordered: bool) -> PartitionResult:
        """Append what is missing of all the batch's rows for the partition."""
        held = self._held(self._claim.progress)
        if held.rows and self._claim.progress:
            refuse_second_task(self._partition, self._task, self._claim.progress.task)
        if held.complete and self._claim.progress:
            self._require_same(held, records)
            return PartitionResult(self._claim.progress, held.rows, 0)
        resolved = 0
        for chunk in self._chunks(self._missing(held, records, ordered=ordered), held, limits):
            outcome = self._log.append(self._claim, chunk)
            match outcome:
                case Appended():
                    resolved += outcome.resolved
                    self._claim = self._claim.after(chunk, outcome.range)
                case Fenced(by):
                    refuse_second_task(self._partition, self._task, by)
                    return PartitionResult(self._other(outcome, records), held.rows, resolved)
                case _:
                    raise error_of(outcome, self._partition)
        if self._claim.progress is None:
            msg = "a batch with rows leaves progress"
            raise AssertionError(msg)
        return PartitionResult(self._claim.progress, held.rows, resolved)

    def _claimed(self, plan: Plan) -> Claim | Refusal:
        """The claim; a ledger without an entry is believed when it cannot have forgotten one of this batch."""
        claim = self._log.claim(self._partition, plan)
        ledger: list[Progress | None] = [claim.progress] if isinstance(claim, Claim) else []
        if isinstance(claim, ProgressLost):
            ledger = [self._log.progress(partition, plan.job) for partition in range(plan.partitions)]
            if forgot_none(self._batch, plan, ledger, clock.now_ms()):
                claim = self._log.claim(self._partition, replace(plan, rejoined=False))
        self._begun_after_ms = begun_after(self._batch, plan, ledger)
        return claim

    def _held(self, progress: Progress | None) -> BatchProgress:
        return batch_so_far(self._batch, self._claim.plan.job, self._partition, progress)

    def _missing(self, held: BatchProgress, records: pa.Table, *, ordered: bool) -> pa.Table:
        """The rows after those that the partition holds, which are compared."""
        if not held.rows:
            return records
        if not ordered:
            raise OptionError(
                f"partition {self._partition} holds the first {held.rows} rows of batch {held.id}, which was begun "
                f"in a fixed order (option orderBy, or the full route) and now comes without one. Nothing more was "
                f"appended. Give orderBy as before."
            )
        if records.num_rows <= held.rows:
            raise self._changed(
                f"{held.rows} of its rows are in the log and not all, but now it has {records.num_rows}"
            )
        self._require_same(held, records.slice(0, held.rows))
        return records.slice(held.rows)

    def _chunks(self, records: pa.Table, held: BatchProgress, limits: ChunkLimits) -> Iterator[Chunk]:
        """The chunks that follow one another, each made for the claim that the one before left."""
        buffer = ChunkBuffer(limits, self._partition)
        cut = [full for each in records.to_batches() for full in buffer.add(each, 0.0, held.rows)]
        cut.append(buffer.take())
        for number, part in enumerate(cut, 1):
            digest = multiset_digest(part)
            held = replace(
                held,
                rows=held.rows + part.num_rows,
                digest=joined_digest(held.digest, digest),
                complete=number == len(cut),
                begun_after_ms=self._begun_after_ms,
            )
            yield _chunk(part, digest, self._claim, held, self._task)

    def _other(self, fenced: Fenced, records: pa.Table) -> Progress:
        """Another attempt took over: its progress once it has completed the same rows."""
        progress = await_other(
            self._log,
            self._claim,
            fenced,
            done=lambda found: self._held(found).complete,
            missing=lambda found: not self._held(found).complete,
            wait_seconds=self._wait_seconds,
        )
        self._require_same(self._held(progress), records)
        return progress

    def _require_same(self, held: BatchProgress, records: pa.Table) -> None:
        if (held.rows, held.digest) != (records.num_rows, multiset_digest(records)):
            raise self._changed(f"the {held.rows} rows of it in the log are not the {records.num_rows} of now")

    def _changed(self, found: str) -> InputChangedError:
        return InputChangedError(
            f"partition {self._partition}: batch {self._batch.id} of job {self._claim.plan.job!r} came again with "
            f"other rows: {found}. Nothing more was appended. {_MEND}"
        )


def _chunk(records: pa.Table, digest: str, claim: Claim, batch: BatchProgress | None, task: str) -> Chunk:
    """The chunk of these records, with their digest, that comes next in the claim's job."""
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
