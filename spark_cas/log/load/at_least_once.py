"""Unconditional loads: append the rows of a task without a plan, claim or ledger.

A task that Spark retries appends its rows again.
"""

import time
from collections.abc import Iterable

import pyarrow as pa

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import ConditionalLogError, LayoutChangedError, UnknownOutcomeError
from spark_cas.core.outcome import Appended, LayoutChanged, Refusal, Unknown, error_of
from spark_cas.core.plan import Layout, PartitionResult, Progress
from spark_cas.core.records import RECORDS
from spark_cas.log import clock
from spark_cas.log.backend import Backend
from spark_cas.log.load.append_rows import PartitionRows, fill, refuse_unknown_partition
from spark_cas.log.load.cancelling import TaskRun


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
    run = run or TaskRun()

    def begin(partition: int) -> _BlindLoad:
        refuse_unknown_partition(partition, layout.partitions)
        return _BlindLoad(log, layout, partition, task=task, limits=limits, guarantee=guarantee, run=run)

    loads = fill(run.checked(log, batches), begin, limits.max_bytes)
    return tuple(load.finish() for _, load in sorted(loads.items()))


class _BlindLoad(PartitionRows):
    def __init__(
        self,
        log: Backend,
        layout: Layout,
        partition: int,
        *,
        task: str,
        limits: ChunkLimits,
        guarantee: str,
        run: TaskRun,
    ) -> None:
        super().__init__(log, partition, task, limits, run)
        self._layout = layout
        self._guarantee = guarantee
        self._appended: list[tuple[int, int]] = []

    def add(self, records: pa.RecordBatch) -> None:
        for full in self._buffer.add(records.select(RECORDS.names), time.monotonic(), self._rows):
            self._append(full)

    def flush(self) -> None:
        self._append(self._buffer.take())

    def finish(self) -> PartitionResult:
        """Append the last rows after the end of the input."""
        if self._buffer.records:
            self.flush()
        progress = Progress(
            job="",
            partition=self._partition,
            rows=self._digest.rows,
            digest=self._digest.hexdigest(),
            base_offset=min(base for base, _ in self._appended),
            end_offset=max(end for _, end in self._appended),
            chunks=len(self._appended),
            layout_epoch=self._layout.epoch,
            complete=True,
            committed_at_ms=clock.now_ms(),
            task=self._task,
        )
        return PartitionResult(progress, 0, self._resolved, self._appends, self._guarantee)

    def _append(self, records: pa.Table) -> None:
        self._run.check(self._log)
        chunk = self._chunk_of(records, complete=False)
        before = self._digest.rows - records.num_rows
        try:
            outcome = self._log.append_blind(self._partition, self._layout, chunk, self._guarantee)
        except ConditionalLogError as error:
            raise error.with_message(f"{error.message} {self._remains(before)}") from None
        if not isinstance(outcome, Appended):
            raise self._error(outcome, before)
        self._appended.append((outcome.range.base_offset, outcome.range.end_offset))
        self._count(outcome, records)

    def _remains(self, before: int) -> str:
        return (
            f"Of partition {self._partition} this attempt has appended {before} rows for certain, which stay, as do "
            f"those that it appended to others. This write is {self._guarantee}, and no job: run again, it appends "
            f"all of its rows again."
        )

    def _error(self, outcome: Refusal | Unknown, before: int) -> ConditionalLogError:
        remains = self._remains(before)
        match outcome:
            case LayoutChanged(planned, actual):
                return LayoutChangedError(
                    f"partition {self._partition}: the rows were routed for layout epoch {planned}, and the log has, "
                    f"or is being given, epoch {actual}: partitions are added. {remains} Read the log, "
                    f"then route and write the missing rows.",
                    partition=self._partition,
                )
            case Unknown(cause):
                return UnknownOutcomeError(
                    f"partition {self._partition}: the commit status of the last rows is unknown: {cause}. {remains}",
                    partition=self._partition,
                )
        return error_of(outcome, self._partition)
