"""The writer of a load that is not exactly once: it has no plan, and expects nothing."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import ConditionalLogError, JobMismatchError, OptionError, StorageError
from spark_cas.core.plan import BY_KEY, Completion, Layout
from spark_cas.core.row_claims import COLUMN
from spark_cas.log import clock
from spark_cas.log.backend import Backend
from spark_cas.log.load.blind import load_blind
from spark_cas.log.open import AnySpec
from spark_cas.options.parse import WriteOptions
from spark_cas.spark.plain_errors import called_by_spark
from spark_cas.spark.records import by_partition
from spark_cas.spark.worker import planned_log, task_number
from spark_cas.spark.writing.complete_input import whole_input
from spark_cas.spark.writing.report import TaskReport, accepted, attempted, put_report


@dataclass(frozen=True, slots=True)
class BlindTask:
    """All that a task needs: plain values, the same for every attempt."""

    spec: AnySpec
    layout: Layout
    run: str
    """Identity of this write."""
    limits: ChunkLimits
    guarantee: str
    report: str | None


def plan_blind_write(
    log: Backend, options: WriteOptions, layout: Layout, limits: ChunkLimits, guarantee: str
) -> "BlindWriter":
    """The writer of rows that expect nothing (`refuse_conditions`). Nothing is recorded.

    Raises JobMismatchError for a job that was begun exactly once, StorageError where that cannot be seen: its rows
    would be appended again.
    """
    if options.job is not None:
        _refuse_begun(log, options.job, guarantee)
    return BlindWriter(BlindTask(options.spec, layout, uuid.uuid4().hex, limits, guarantee, options.report))


@called_by_spark
class BlindWriter(DataSourceArrowWriter):
    """Appends the rows of each log partition at whatever its end is. A task that is tried again does so again."""

    def __init__(self, task: BlindTask) -> None:
        self.task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Append the rows of one task. A definite refusal is part of the report, as that of any write."""
        return attempted(by_partition(whole_input(iterator), self.task.layout.partitions), self._append)

    def _append(self, pairs: Iterator[tuple[int, pa.RecordBatch]]) -> TaskReport:
        task = self.task
        with planned_log(task.spec, task.layout.log_id, appending=True) as log:
            results = load_blind(
                log,
                task.layout,
                pairs,
                task=f"{task.run}/{task_number()}",
                limits=task.limits,
                guarantee=task.guarantee,
            )
        return TaskReport(results)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Raise what was refused, once; else put the result where it was asked for: no registry has it."""
        try:
            reports = accepted(messages)
        except ConditionalLogError as refusal:
            raise type(refusal)(
                f"{refusal.message} All rows of tasks that ended are appended, and stay. So read the log, and write "
                f"only what it does not hold yet."
            ) from None
        results = [result for report in reports for result in report.results]
        if self.task.report is not None:
            layout, now_ms = self.task.layout, clock.now_ms()
            partitions = tuple(sorted(results, key=lambda result: result.progress.partition))
            put_report(self.task.report, Completion("", layout.log_id, layout.epoch, partitions, now_ms))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing: what was appended stays."""


def refuse_conditions(options: WriteOptions, schema: StructType, guarantee: str) -> None:
    """OptionError where a write expects something that it cannot be sure of with this guarantee."""
    found = {
        f"compare={options.compare}": options.compare == BY_KEY,
        "atomic=true": options.atomic,
        "atomic=load": options.whole,
        f"the column {COLUMN}": COLUMN in schema.fieldNames(),
        f"expectedOffsets={options.expected_offsets.mode}": options.expected_offsets.mode != "none",
    }
    expected = [name for name, is_there in found.items() if is_there]
    if expected:
        raise OptionError(
            f"{expected[0]}, given or by default, is a condition, and a write that is {guarantee} (see option "
            f"idempotence) cannot keep it. Nothing was appended. Where no check is wanted, say expectedOffsets=none "
            f"and leave out what expects something; else say idempotence=required, which tells what it takes here."
        )


def _refuse_begun(log: Backend, job: str, guarantee: str) -> None:
    fix = "Give this user the rights that exactly once takes (idempotence=required names them), or leave job out"
    try:
        plan = log.plan(job)
    except StorageError as unseen:
        raise StorageError(
            f"job {job!r} may have been begun exactly once, which cannot be seen: {unseen.message} A write that is "
            f"{guarantee} would append its rows again. Nothing was appended. {fix}."
        ) from None
    if plan is not None:
        raise JobMismatchError(
            f"job {job!r} was begun exactly once, and a write that is {guarantee} would append its rows again. "
            f"Nothing was appended. {fix}, or give another job name if these are other rows."
        )
