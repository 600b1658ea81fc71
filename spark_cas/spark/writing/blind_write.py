"""The writer of a load that is not exactly-once: it has no plan, and checks no expected offsets."""

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_cas.core.errors import ConditionalLogError, JobMismatchError, OptionError, StorageError
from spark_cas.core.guarantee import OFF
from spark_cas.core.partitioner import Partitioner
from spark_cas.core.plan import BY_KEY, Completion, Layout
from spark_cas.core.row_claims import COLUMN
from spark_cas.log import clock
from spark_cas.log.backend import Backend
from spark_cas.log.load.append_rows import load_blind
from spark_cas.log.load.cancelling import TaskRun
from spark_cas.options.request import WriteRequest
from spark_cas.spark.arrow_rows import by_partition
from spark_cas.spark.plain_errors import called_by_spark
from spark_cas.spark.schema import EndMarkers, Mark
from spark_cas.spark.worker import planned_log, task_number
from spark_cas.spark.writing.end_markers import task_rows
from spark_cas.spark.writing.report import (
    TaskReport,
    accepted,
    appended_rows,
    attempted,
    for_last_requests,
    is_rejected,
    measured,
    put_report,
    record_aborted,
    stop_others,
)


@dataclass(frozen=True, slots=True)
class BlindTask:
    """The values that a task needs, the same for each attempt, as in `spark_cas.spark.writing.write.WriteTask`."""

    request: WriteRequest
    layout: Layout
    run: str
    planning_ms: tuple[int, int]
    guarantee: str
    end_markers: EndMarkers
    partitioner: Partitioner | None = None
    """The partitioner with which tasks assign rows to partitions; None if the rows have a column ``partition``."""
    in_any_task: bool = False
    """Whether any task may have rows of any partition."""


def plan_blind_write(
    log: Backend,
    request: WriteRequest,
    layout: Layout,
    guarantee: str,
    *,
    mark: Mark | None,
    partitioner: Partitioner | None,
    started_ms: int,
) -> "BlindWriter":
    """Return the writer of a load without conditions (`refuse_conditions`). Nothing is recorded in the log.

    Raises JobMismatchError if the job was begun as exactly-once, because its rows would be appended again. Raises
    StorageError if the registry, which has that information, cannot be read.
    """
    if request.job is not None:
        _refuse_begun(log, request.job, guarantee)
    task = BlindTask(
        request,
        layout,
        run=uuid.uuid4().hex,
        planning_ms=(started_ms, clock.now_ms()),
        guarantee=guarantee,
        end_markers=mark.end_markers if mark else "none",
        partitioner=partitioner,
        in_any_task=request.idempotence == OFF and mark is None,
    )
    return BlindWriter(task)


@called_by_spark
class BlindWriter(DataSourceArrowWriter):
    """Appends the rows of each log partition at its present end. A retried task appends its rows again."""

    def __init__(self, task: BlindTask) -> None:
        self.task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Append the rows of one task, and return its report, as `attempted` does."""
        task = self.task
        run = TaskRun(task.run, task.planning_ms[1])
        cancel = partial(stop_others, task.request.spec, task.layout.log_id, task.run)
        partitions = task.layout.partitions
        pairs = by_partition(task_rows(iterator, partitions, task.end_markers), partitions, task.partitioner)
        return attempted(pairs, partial(self._append, run), run=run, cancel=cancel)

    def _append(self, run: TaskRun, pairs: Iterator[tuple[int, pa.RecordBatch]]) -> TaskReport:
        task = self.task
        with planned_log(task.request.spec, task.layout.log_id, appending=True) as log:
            results = load_blind(
                log,
                task.layout,
                pairs,
                task=f"{task.run}/{task_number()}",
                limits=task.request.limits,
                guarantee=task.guarantee,
                run=run,
            )
        return TaskReport(results)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write the report file if the options name one. If tasks were rejected, raise one error for all of them."""
        task = self.task
        with measured(task.request, messages, job=task.request.job, planning_ms=task.planning_ms):
            try:
                reports = accepted(messages, in_any_task=task.in_any_task)
            except ConditionalLogError as refusal:
                self.abort(messages)
                rows = {partition: count for partition, count in appended_rows(messages).items() if count}
                # A failed attempt of a task may have appended more rows than the messages count.
                advice = (
                    "Appended rows stay, also those of failed task attempts. Write only the rows that are missing."
                )
                raise refusal.with_message(f"{refusal.message} {advice}", appended_rows=rows) from None
            if task.request.report is not None:
                results = [result for report in reports for result in report.results]
                partitions = tuple(sorted(results, key=lambda result: result.progress.partition))
                layout = task.layout
                completion = Completion("", layout.log_id, layout.epoch, partitions, clock.now_ms())
                put_report(task.request.report, completion)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the cancellation. The appended rows stay."""
        task = self.task
        if is_rejected(messages):
            spec = for_last_requests(task.request.spec)
            with suppress(ConditionalLogError), planned_log(spec, task.layout.log_id) as log:
                log.remove_cancelled(task.run)
        record_aborted(task.request, messages, job=task.request.job, planning_ms=task.planning_ms)


def refuse_conditions(request: WriteRequest, schema: StructType, guarantee: str) -> None:
    """Raise OptionError if a write has a condition that it cannot ensure with this guarantee."""
    result = {
        f"compare={request.compare}": request.compare == BY_KEY,
        "atomic=true": request.atomic,
        "atomic=load": request.whole,
        f"the column {COLUMN}": COLUMN in schema.fieldNames(),
        f"expectedOffsets={request.expected_offsets.mode}": request.expected_offsets.mode != "none",
    }
    expected = [name for name, is_there in result.items() if is_there]
    if expected:
        raise OptionError(
            f"{expected[0]}, given or by default, is a condition, and a write that is {guarantee} (see option "
            f"idempotence) cannot ensure it. Nothing was appended. If you need no check, remove the conditions and "
            f"set expectedOffsets=none. Otherwise set idempotence=required; its error lists the missing rights."
        )


def _refuse_begun(log: Backend, job: str, guarantee: str) -> None:
    fix = "Give this user the rights that exactly once takes (idempotence=required names them), or leave job out"
    try:
        plan = log.plan(job)
    except StorageError as unseen:
        raise StorageError(
            f"job {job!r} may have been begun exactly once, which cannot be seen: {unseen.message} A write that is "
            f"{guarantee} would append its rows again. Nothing was appended. {fix}.",
            job=job,
        ) from None
    if plan is not None:
        raise JobMismatchError(
            f"job {job!r} was begun exactly once, and a write that is {guarantee} would append its rows again. "
            f"Nothing was appended. {fix}, or give another job name if these are other rows.",
            job=job,
        )
