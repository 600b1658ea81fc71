"""Append the rows of one task to their partitions, in order and exactly once, after the existing rows of the job.

`load_blind` appends without a plan, claim or ledger. If Spark retries such a task, it appends its rows again.
"""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa

from spark_cas.core.chunks import Chunk, ChunkBuffer, ChunkLimits
from spark_cas.core.claim import Claim
from spark_cas.core.digest import RunningDigest
from spark_cas.core.errors import (
    BatchTooLargeError,
    ConditionalLogError,
    InputChangedError,
    JobMismatchError,
    LayoutChangedError,
    MissingRowsError,
    NotRoutedError,
    UnknownOutcomeError,
)
from spark_cas.core.guarantee import EXACTLY_ONCE
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.outcome import NO_TOTALS, Appended, Fenced, LayoutChanged, Outcome, Unknown, error_of
from spark_cas.core.plan import Layout, PartitionResult, Plan, Progress, claim_of_keys
from spark_cas.core.records import RECORDS
from spark_cas.core.row_claims import COLUMN, NO_CHECK, check_claim_values, check_keys, check_rising, split_claims
from spark_cas.log import clock
from spark_cas.log.backend import Backend
from spark_cas.log.load.append_by_key import PartitionAppends
from spark_cas.log.load.attempts import FENCED_RETRY_WAIT_SECONDS, await_other, refuse_second_task
from spark_cas.log.load.cancelling import TaskRun

_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)

_BUFFERED_CHUNKS = 2
"""The maximum size of a task's buffers over all of its partitions, in full chunks."""


def append_rows(
    log: Backend,
    plan: Plan,
    batches: Iterable[tuple[int, pa.RecordBatch]],
    *,
    task: str,
    limits: ChunkLimits,
    atomic: bool = False,
    has_end: bool = True,
    fenced_retry_wait_seconds: float = FENCED_RETRY_WAIT_SECONDS,
    run: TaskRun | None = None,
    guarantee: str = EXACTLY_ONCE,
) -> tuple[PartitionResult, ...]:
    """Append the rows of one task after the existing rows of the job in each partition.

    The task hashes the rows that the log already holds, compares them and skips them. It claims a partition when the
    first chunk is full, or after the end of the input, and appends each chunk when it is full. After the end of the
    input, it completes one partition after the other. If the job has run before, the task first claims all of them,
    to detect changed input before it appends more. With ``atomic``, all rows of a partition are one chunk, and the
    task appends none before it has read all of its input.

    Args:
        batches: The rows, as (partition, rows in `RECORDS` or `CLAIMED`).
        task: The name of the task, ``run/number``. A second task of the same run with rows for the same partition is
            an error; a task of another run resumes.
        atomic: Whether all rows of a partition are one chunk.
        has_end: Whether the task has all of its rows when ``batches`` ends. If not, it completes no partition: it may
            have been cut off.
        fenced_retry_wait_seconds: The maximum time in which the successor of a fenced task makes no progress.
        run: Counts the appended rows, and stops the task if another task cancelled the run.
        guarantee: `load_blind` uses another one than `EXACTLY_ONCE`.

    Returns:
        The progress of each partition that has rows in this task; it is the same from every attempt.

    Raises:
        RefusedError: A partition rejected a chunk. The chunks before it stay.
        ExpectedOffsetError: The expected offset of a row is not valid.
        BatchTooLargeError: With ``atomic``, the rows do not fit into one chunk. Nothing was appended.
        JobMismatchError: With ``atomic``, an earlier run appended a part of the rows without it.
        InputChangedError: The existing rows differ from those of the input.
        NotRoutedError: Another task of this run has rows for the same partition, or the log lacks a partition.
        UnknownOutcomeError: The task lost the response to an append and could not resolve it.
        FencedError: The successor made no progress for ``fenced_retry_wait_seconds``.
        RunCancelledError: Another task of this run found a definite error.
    """
    run = run or TaskRun()
    most_bytes = math.inf if atomic else _BUFFERED_CHUNKS * limits.max_bytes
    limits = replace(limits, max_seconds=math.inf) if atomic else limits
    loads: dict[int, _PartitionLoad] = {}
    for partition, records in run.checked(log, batches):
        if records.num_rows == 0:
            continue
        if partition not in loads:
            refuse_unknown_partition(partition, plan.partitions)
            exactly = guarantee == EXACTLY_ONCE
            appends = PartitionAppends(log, partition) if exactly else _BlindAppends(log, partition, guarantee)
            loads[partition] = _PartitionLoad(log, partition, task, limits, run, plan, atomic, has_end, appends)
        loads[partition].add(records)
        if sum(each.buffered_bytes for each in loads.values()) > most_bytes:
            max(loads.values(), key=lambda each: each.buffered_bytes).flush()
    if plan.rejoined:
        # Detect in all partitions whether the input has changed, before the first append.
        for _, load in sorted(loads.items()):
            load.claim()
            load.refuse_missing_rows()
    results = (load.finish(fenced_retry_wait_seconds) for _, load in sorted(loads.items()))
    return tuple(replace(each, guarantee=guarantee) for each in results)


def refuse_unknown_partition(partition: int, partitions: int) -> None:
    """Raise NotRoutedError for a partition that the log does not have."""
    if not 0 <= partition < partitions:
        raise NotRoutedError(
            f"a row is for partition {partition}, but the log has {partitions} (0 to {partitions - 1}). "
            f"Use spark_cas.route(df, ...), which gives each row a partition of this log.",
            partition=partition,
        )


@dataclass
class _PartitionLoad:
    """The rows of one task for one partition: buffered, hashed, and appended in chunks."""

    _log: Backend
    _partition: int
    _task: str
    _limits: ChunkLimits
    _run: TaskRun
    _plan: Plan
    _atomic: bool
    _has_end: bool
    _partition_appends: PartitionAppends

    def __post_init__(self) -> None:
        self._buffer = ChunkBuffer(self._limits, self._partition)
        self._digest = RunningDigest()
        self._highest_claim = NO_CHECK
        self._fenced: Fenced | None = None
        self._claim: Claim | None = None
        self._resumed_rows = 0
        self._resolved = 0
        self._appends = NO_TOTALS

    @property
    def buffered_bytes(self) -> int:
        return self._buffer.bytes

    @property
    def _rows(self) -> int:
        return self._digest.rows + self._buffer.records

    def add(self, records: pa.RecordBatch) -> None:
        """Buffer the partition's next rows, and append each full chunk."""
        self._check_claims(records)
        self._buffer_rows(self._skip_resumed(records))
        if self._fenced:
            self.flush()

    def flush(self) -> None:
        """Append the buffered rows to free memory; a fenced task only hashes them."""
        self._append(self._buffer.take(), complete=False)

    def claim(self) -> Claim:
        """Claim the partition just before the first append, and read the ledger entry of the job.

        An earlier claim would be harmful: each claim fences the previous one, so two slow writers would fence each
        other.
        """
        if self._claim is not None:
            return self._claim
        self._claim = claim = self._partition_appends.claim(self._plan)
        self._run.count(claim.progress)
        if claim.progress:
            refuse_second_task(self._partition, self._task, claim.progress.task)
            self._resumed_rows = claim.progress.rows
            if self._atomic and self._resumed_rows and not claim.progress.complete:
                raise JobMismatchError(
                    f"partition {self._partition}: the log has only {self._resumed_rows} of the rows of job "
                    f"{self._plan.display_name!r}, so the option atomic cannot put all of them into one chunk. "
                    f"Nothing more was appended to this partition. Run the job again without this option.",
                    partition=self._partition,
                    job=self._plan.display_name,
                )
            self._skip_buffered()
        return claim

    def refuse_missing_rows(self) -> None:
        """Raise InputChangedError if the input has ended before all rows that the log holds.

        It is a MissingRowsError if the input may have been cut off.
        """
        if self._digest.rows < self._resumed_rows:
            raise self._input_changed(
                f"{self._resumed_rows} of its rows are in the log, but the input now has only {self._digest.rows}",
                or_cut_off=not self._has_end,
            )

    def finish(self, fenced_retry_wait_seconds: float) -> PartitionResult:
        """Append the last rows after the end of the input, or close the job in this partition."""
        before = self.claim().progress
        self.refuse_missing_rows()
        if not self._fenced and not (before and before.complete):
            self._append(self._buffer.take(), complete=self._has_end)
        progress = (
            self._await_other(self._fenced, fenced_retry_wait_seconds) if self._fenced else self.claim().progress
        )
        if progress is None:
            msg = "a finished partition has progress"
            raise AssertionError(msg)
        return PartitionResult(progress, self._resumed_rows, self._resolved, self._appends)

    def _buffer_rows(self, records: pa.RecordBatch) -> None:
        if records.num_rows == 0:
            return
        for full in self._buffer.add(records, time.monotonic(), self._rows):
            if self._atomic:
                raise self._too_large()
            self._append(full, complete=False)
        if self._digest.rows < self._resumed_rows:
            self._skip_buffered()

    def _skip_buffered(self) -> None:
        """Hash the rows that were buffered before the claim, before any later row."""
        for batch in self._buffer.take().to_batches():
            self._buffer_rows(self._skip_resumed(batch))

    def _skip_resumed(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Hash the rows that the log holds, and return the remaining ones."""
        left = max(0, self._resumed_rows - self._digest.rows)
        if left:
            self._digest.update(split_claims(records.slice(0, left))[0])
        progress, remaining = self._claim.progress if self._claim else None, records.slice(left)
        if left and progress and self._digest.rows == progress.rows and self._digest.hexdigest() != progress.digest:
            raise self._input_changed(f"the first {progress.rows} rows differ from those in the log")
        if progress and progress.complete and remaining.num_rows:
            raise self._input_changed(f"it completed with {progress.rows} rows, but the input now has more")
        return remaining

    def _check_claims(self, rows: pa.RecordBatch) -> None:
        """Raise ExpectedOffsetError for an invalid expected offset, also of a row that the log already holds."""
        records, claims = self._split(rows)
        if claims is None:
            return
        first_row = self._rows
        check_claim_values(claims, first_row)
        if self._plan.by_key:
            check_keys(records.column("key"), claims, first_row)
        else:
            self._highest_claim = check_rising(claims, first_row, self._highest_claim)

    def _split(self, rows: _Rows) -> tuple[_Rows, pa.Array | None]:
        """Return the records and their expected offsets; by key, the plan gives the default."""
        plan = self._plan
        by_plan = claim_of_keys(plan, self._partition) if plan.by_key and COLUMN not in rows.schema.names else None
        if by_plan is None or rows.num_rows == 0:
            return split_claims(rows)
        return rows, pa.repeat(pa.scalar(by_plan, pa.int64()), rows.num_rows)

    def _append(self, rows: pa.Table, *, complete: bool) -> None:
        claim = self.claim()
        rows = pa.Table.from_batches([self._skip_resumed(each) for each in rows.to_batches()], rows.schema)
        records, claims = self._split(rows)
        for batch in records.to_batches():
            self._digest.update(batch)
        rows_so_far, digest = self._digest.rows, self._digest.hexdigest()
        chunk = Chunk(records, rows_so_far, digest, complete, self._task, clock.now_ms(), claims)
        if self._fenced or (rows.num_rows == 0 and not complete):
            return
        self._run.check(self._log)
        outcome, claim = self._partition_appends.append(claim, chunk)
        match outcome:
            case Appended():
                self._resolved += outcome.resolved
                self._appends = self._appends.and_then(outcome)
                self._run.add(self._partition, outcome, chunk.records)
                self._claim = claim.after(chunk, outcome.range)
            case Fenced(by):
                refuse_second_task(self._partition, self._task, by)
                self._fenced = outcome
            case _:
                raise error_of(outcome, self._partition)

    def _await_other(self, fenced: Fenced, wait_seconds: float) -> Progress:
        """Wait until the attempt that took over has completed the same rows."""
        progress = await_other(
            self._log,
            self.claim(),
            fenced,
            done=lambda result: result.complete or (not self._has_end and result.rows >= self._digest.rows),
            missing=lambda result: result is None or result.rows < self._digest.rows,
            wait_seconds=wait_seconds,
            known=self._known,
        )
        if (progress.rows, progress.digest) != (self._digest.rows, self._digest.hexdigest()):
            result = "another attempt of it completed with other rows than this one has"
            raise self._input_changed(result, or_cut_off=not self._has_end)
        return progress

    def _known(self, progress: Progress | None) -> None:
        self._run.count(progress)
        self._run.check(self._log)

    def _too_large(self) -> BatchTooLargeError:
        return BatchTooLargeError(
            f"partition {self._partition}: the rows of job {self._plan.display_name!r} do not fit into one chunk "
            f"({self._limits.max_records} records, {self._limits.max_bytes} bytes), as the option atomic requires. "
            f"None of them was appended. Raise maxRecordsPerChunk or maxBytesPerChunk. Or remove the option atomic: "
            f"then a failed load leaves a prefix of the rows of a partition.",
            partition=self._partition,
            job=self._plan.display_name,
        )

    def _input_changed(self, result: str, *, or_cut_off: bool = False) -> InputChangedError:
        return (MissingRowsError if or_cut_off else InputChangedError)(
            f"partition {self._partition}: job {self._plan.display_name!r} was begun with other input: {result}. "
            f"Nothing more was appended to this partition. Run it with the same rows in the same order "
            f"(spark_cas.route sorts them fully; save input first if each run computes it differently). If the input "
            f"is lost, load only the rows that the log does not have, under another job name.",
            partition=self._partition,
            job=self._plan.display_name,
        )


def load_blind(
    log: Backend,
    layout: Layout,
    batches: Iterable[tuple[int, pa.RecordBatch]],
    *,
    task: str,
    limits: ChunkLimits,
    guarantee: str,
    run: TaskRun | None = None,
) -> tuple[PartitionResult, ...]:
    """Append the rows of one task and return the result of each partition.

    The task appends each chunk when it is full. The progress counts the rows of this call and has no job. The range
    from ``base_offset`` to ``end_offset`` may include records of other writers.

    ``run`` counts the appended rows, and stops the task if another task cancelled the run.

    Raises NotRoutedError for a partition that the log does not have, RunCancelledError, and the errors of
    `Blind.append_blind`. Earlier chunks stay.
    """
    nothing = (None,) * layout.partitions
    plan = Plan("", layout.log_id, layout.epoch, nothing, (0,) * layout.partitions)
    plain = ((partition, records.select(RECORDS.names)) for partition, records in batches)
    return append_rows(log, plan, plain, task=task, limits=limits, run=run, guarantee=guarantee)


class _BlindAppends(PartitionAppends):
    """The appends of one task to one partition, without a claim or a ledger entry."""

    def __init__(self, log: Backend, partition: int, guarantee: str) -> None:
        super().__init__(log, partition)
        self._guarantee = guarantee

    def claim(self, plan: Plan) -> Claim:
        return Claim(self._partition, plan, expected_offset=None, progress=None, end_offset=0)

    def append(self, claim: Claim, chunk: Chunk) -> tuple[Outcome, Claim]:
        partition, plan, rows = self._partition, claim.plan, chunk.records.num_rows
        if not rows:
            # The task has appended all rows.
            at = OffsetRange(claim.end_offset, claim.end_offset)
            return Appended(at, 0, None, 0, has_offset=True, resolved=False), claim
        layout = Layout(plan.log_id, plan.layout_epoch, plan.partitions)
        remains = (
            f"Of partition {partition} this attempt has appended {chunk.rows - rows} rows for certain, which stay, "
            f"as do those that it appended to others. This write is {self._guarantee}, and no job: run again, it "
            f"appends all of its rows again."
        )
        try:
            outcome = self._log.append_blind(partition, layout, replace(chunk, complete=False), self._guarantee)
        except ConditionalLogError as error:
            raise error.with_message(f"{error.message} {remains}") from None
        match outcome:
            case LayoutChanged(planned, actual):
                raise LayoutChangedError(
                    f"partition {partition}: the rows were routed for layout epoch {planned}, and the log has, "
                    f"or is being given, epoch {actual}: partitions are added. {remains} Read the log, "
                    f"then route and write the missing rows.",
                    partition=partition,
                    resumable=False,
                )
            case Unknown(cause):
                raise UnknownOutcomeError(
                    f"partition {partition}: the commit status of the last rows is unknown: {cause}. {remains}",
                    partition=partition,
                )
        return outcome, claim
