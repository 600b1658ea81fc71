"""The streaming sink: append each micro-batch of a query, or of ``foreachBatch``, exactly once.

Spark creates one writer for the tasks of a micro-batch, and another one in another process for its commit. Both are
created from the options alone, and only the first is planned. The state of a stream is in the log: its plan, and a
ledger entry for each partition.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_cas.core.errors import ConditionalLogError, ConflictError, LayoutChangedError, OptionError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.load_locks import LoadLock
from spark_cas.core.micro_batch import Batch
from spark_cas.core.partitioner import Placement
from spark_cas.core.plan import Layout, PartitionResult, Plan, Progress
from spark_cas.log import clock
from spark_cas.log.backend import Backend
from spark_cas.log.load.append_micro_batch import (
    begin_stream,
    complete_batch,
    ledger_before,
    load_batch,
    refused_batch,
    require_no_other_rows,
)
from spark_cas.log.load.atomic_load import Spool, abort_group, aborted, in_one_transaction, is_committed, with_group
from spark_cas.log.load.cancelling import TaskRun
from spark_cas.log.load.locking import Applicant, acquire_lock, release_lock
from spark_cas.options.request import LOCK_WAIT_TIMEOUT_MS, WriteRequest
from spark_cas.spark.arrow_rows import by_partition
from spark_cas.spark.plain_errors import called_by_spark
from spark_cas.spark.schema import EndMarkers, check_write_schema, refuse_claims
from spark_cas.spark.versions import DataSourceStreamArrowWriter, only_commits
from spark_cas.spark.worker import local_property, open_here, planned_log, task_number
from spark_cas.spark.writing.end_markers import has_end, require_markers, task_rows
from spark_cas.spark.writing.preflight import placement_of, preflight_limits, refuse_one_transaction, require_layout
from spark_cas.spark.writing.report import (
    TaskReport,
    accepted,
    attempted,
    for_last_requests,
    measured,
    measured_plan,
    record_aborted,
)
from spark_cas.spark.writing.write import with_job_state

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_RUN_ID = "spark.jobGroup.id"
"""Local properties of a query's tasks. The job group of a query is the id of its run."""

_NOTHING_EXPECTED = ExpectedOffsets("none")


@dataclass(frozen=True, slots=True)
class Sink:
    """The values that a commit needs.

    If the options name no job, the id of the query is the job, which only its tasks know.
    """

    request: WriteRequest
    placement: Placement | None
    """How the rows were assigned to partitions. None in a sink that only commits, or if the caller assigned them."""

    def plan_in(self, log: Backend, job: str, partition: int = 0) -> Plan:
        """Return the plan of the stream under this job name. Raises the errors of `begin_stream`."""
        expected, whole = self.request.expected_offsets, self.request.whole
        return begin_stream(log, job, expected, partition, whole=whole, placement=self.placement)


@dataclass(frozen=True, slots=True)
class BatchTask(Sink):
    """The values that a task needs, the same for each attempt."""

    planning_ms: tuple[int, int]
    """When the driver began and finished to plan the batch, milliseconds since 1970."""
    layout: Layout
    plan: Plan | None
    """None if the options name no job."""
    ledger: tuple[Progress, ...]
    """The ledger entries of the stream before the batch (`ledger_before`), if the options name a job."""
    run: str | None
    """The id of this write in ``foreachBatch``. None if the tasks read the run of the query from Spark."""
    order_by: tuple[str, ...] | None
    """The columns to sort by. Empty if the rows already have a fixed order, None if they have none."""
    end_markers: EndMarkers
    """The end markers of the rows."""

    def plan_in(self, log: Backend, job: str, partition: int = 0) -> Plan:
        """Return the plan from the driver, or else as `Sink.plan_in` does."""
        return self.plan or Sink.plan_in(self, log, job, partition)


@dataclass(frozen=True, kw_only=True)
class BatchReport(TaskReport):
    """The commit message of a task, with or without rows. It has the query, which the driver does not know."""

    job: str
    batch: Batch
    run: str
    """The id of the write of this batch."""
    planning_ms: tuple[int, int]
    """As in `BatchTask`."""
    group: str = ""
    """The commit group of the appended rows; empty if there is none."""


def plan_stream_write(request: WriteRequest, schema: StructType) -> "StreamWriter":
    """Return the writer of a query's micro-batch, after all checks that are possible before tasks run.

    For a process that only commits, this skips the checks and the plan. They were done for the writer of the tasks.
    """
    # This runs for each batch. The brokers were almost always reached for the previous one.
    request = replace(request, spec=request.spec.as_reached())
    refuse_one_transaction(request)
    if only_commits():
        return StreamWriter(Sink(request, placement=None))
    with measured_plan(request):
        return StreamWriter(_task(request, schema, run=None))


def plan_batch_write(request: WriteRequest, schema: StructType) -> "BatchWriter":
    """Return the writer of one batch in ``foreachBatch``, after the same checks."""
    with measured_plan(request):
        return BatchWriter(_task(request, schema, run=uuid.uuid4().hex))


@called_by_spark
class StreamWriter(DataSourceStreamArrowWriter):
    """Appends each micro-batch of a streaming query exactly once, or raises an error."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Append a task's rows of the batch. Complete or verify a replayed batch."""
        if not isinstance(self.sink, BatchTask):
            raise TypeError("a writer that was made for a commit has no plan for tasks")
        return _write(self.sink, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
        """Complete the batch, and make an atomic one visible.

        If tasks were rejected, this raises one error for all of them, and the query stops.
        """
        if None in messages:
            # Each task of a micro-batch has a message. Spark accepts a continuous query without an error. It then
            # passes no rows to a sink in Python, but commits.
            raise OptionError(
                "the query has a continuous trigger, in which Spark gives no rows to a sink in Python: nothing was "
                "appended. Use .trigger(processingTime=...) or .trigger(availableNow=True), and a new checkpoint."
            )
        _commit(self.sink, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Abort an atomic batch. Rows of other batches stay, and a replay resumes after them."""
        _abort(self.sink, messages, batchId)


@called_by_spark
class BatchWriter(DataSourceArrowWriter):
    """Appends one batch in ``foreachBatch`` exactly once, or raises an error, as `StreamWriter` does."""

    def __init__(self, task: BatchTask) -> None:
        self.task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        return _write(self.task, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _commit(self.task, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _abort(self.task, messages, self.task.request.batch_id)


def _task(request: WriteRequest, schema: StructType, run: str | None) -> BatchTask:
    started_ms = clock.now_ms()
    mark = check_write_schema(schema, routed=request.routed, on_brokers=request.spec.has_brokers, names=request.names)
    if mark is not None:
        mark.require_options(request.names)
        # `route` has already reached the log.
        request = replace(request, spec=request.spec.as_reached())
        mark.require_whole()
    refuse_claims(schema, "a micro-batch has no offsets that its query could know. Drop the column.")
    markers: EndMarkers = mark.end_markers if mark else "none"
    require_markers(markers, in_one_task=request.in_one_task)
    placement = placement_of(request, mark)
    with open_here(request.spec) as log:
        layout = require_layout(log, request, mark, placement)
        # A writer is created for each batch. A named stream that has begun does not repeat warnings.
        job, wanted, whole = request.job, request.expected_offsets, request.whole
        first = None if job is None else log.plan(job)
        limits, _ = preflight_limits(log, request.limits, begun=first is not None, placement=placement)
        plan = None if job is None else begin_stream(log, job, wanted, whole=whole, placement=placement, first=first)
        # Read once for all tasks, and before they run, because the read waits for their transactions.
        ledger = () if plan is None else ledger_before(log, plan)
    return BatchTask(
        request=replace(request, limits=limits),
        placement=placement,
        planning_ms=(started_ms, clock.now_ms()),
        layout=layout,
        plan=plan,
        ledger=ledger,
        run=run,
        order_by=request.order_by or (() if mark is not None and mark.sorted else None),
        end_markers=markers,
    )


def _write(task: BatchTask, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
    rows = task_rows(iterator, task.layout.partitions, task.end_markers)
    batch = _batch(task)
    job = batch.query if task.plan is None else task.plan.job
    run = TaskRun()
    report = attempted(
        by_partition(rows, task.layout.partitions, with_offsets=True),
        lambda pairs: _append(task, job, batch, pairs, run),
        run=run,
    )
    return report if isinstance(report, BatchReport) else _report(task, job, batch, **vars(report))


def _report(task: BatchTask, job: str, batch: Batch, **values: Any) -> BatchReport:  # noqa: ANN401 - of a dataclass
    return BatchReport(job=job, batch=batch, run=_run(task, batch), planning_ms=task.planning_ms, **values)


def _append(
    task: BatchTask, job: str, batch: Batch, pairs: Iterator[tuple[int, pa.RecordBatch]], counts: TaskRun
) -> BatchReport:
    run = _run(task, batch)
    first = next(pairs, None)
    if first is None:
        return _report(task, job, batch)
    rows = chain([first], pairs)
    if task.request.in_one_task:
        return _append_in_one_transaction(task, job, batch, rows, counts)
    with planned_log(task.request.spec, task.layout.log_id, appending=True) as log:
        plan = task.plan_in(log, job, first[0])
        if task.request.whole and not is_committed(log, with_group(log, plan, batch.id)):
            # Otherwise two batches could wait for each other. The first task obtains it for the whole batch.
            applicant = Applicant(job, run, wait_seconds=LOCK_WAIT_TIMEOUT_MS / 1000, batch_id=batch.id)
            acquire_lock(log, applicant, _NOTHING_EXPECTED, whole=True)
        plan = with_group(log, plan, batch.id)
        results = _loading(task, log, plan, batch, rows, counts=counts)()
    return replace(_report(task, job, batch, results=results, group=plan.group), run=run)


def _append_in_one_transaction(
    task: BatchTask, job: str, batch: Batch, pairs: Iterable[tuple[int, pa.RecordBatch]], counts: TaskRun
) -> BatchReport:
    spec, log_id = task.request.spec, task.layout.log_id
    with Spool(pairs) as rows, planned_log(spec.with_transaction_of(rows.bytes), log_id) as log:
        plan = with_group(log, task.plan_in(log, job), batch.id)
        results = in_one_transaction(
            log,
            plan,
            _loading(task, log, plan, batch, rows, counts=counts),
            fenced_retry_wait_seconds=task.request.fenced_retry_wait_ms / 1000,
        )
    return _report(task, job, batch, results=results, group=plan.group)


def _loading(
    task: BatchTask,
    log: Backend,
    plan: Plan,
    batch: Batch,
    rows: Iterable[tuple[int, pa.RecordBatch]],
    *,
    counts: TaskRun,
) -> Callable[[], tuple[PartitionResult, ...]]:
    name = f"{_run(task, batch)}/{task_number()}"

    def load() -> tuple[PartitionResult, ...]:
        counts.restart()
        return load_batch(
            log,
            plan,
            batch,
            rows,
            task=name,
            limits=task.request.limits,
            order_by=task.order_by,
            has_end=has_end(task.end_markers),
            ledger=task.ledger,
            fenced_retry_wait_seconds=task.request.fenced_retry_wait_ms / 1000,
            run=counts,
        )

    return load


def _run(task: BatchTask, batch: Batch) -> str:
    return f"{task.run or local_property(_RUN_ID) or uuid.uuid4().hex}/{batch.id}"


def _batch(task: BatchTask) -> Batch:
    # On Spark Connect, and in other threads than that of foreachBatch, Spark does not report the query of a write.
    query = local_property(_QUERY_ID) or task.request.job
    number = local_property(_BATCH_ID) if task.request.batch_id is None else task.request.batch_id
    if not query or number is None:
        raise TypeError("Spark reports no streaming query to the task of a stream")
    return Batch(query, int(number))


def _commit(sink: Sink, messages: Sequence[WriterCommitMessage | None]) -> None:
    report = next((each for each in messages if isinstance(each, BatchReport)), None)
    if report is None:
        return
    with measured(
        sink.request,
        messages,
        job=report.job,
        planning_ms=report.planning_ms,
        batch=report.batch.id,
    ):
        _complete(sink, messages)


def _complete(sink: Sink, messages: Sequence[WriterCommitMessage | None]) -> None:
    try:
        reports = [report for report in accepted(messages) if isinstance(report, BatchReport)]
    except ConditionalLogError as refusal:
        raise _with_job_state(sink, refusal, messages) from None
    results = [result for report in reports for result in report.results]
    groups = {report.group for report in reports if report.group}
    with open_here(sink.request.spec.as_reached()) as log:
        if not sink.request.whole:
            require_no_other_rows(log, reports[0].job, reports[0].batch, results)
            return
        plan = sink.plan_in(log, reports[0].job)
        if len(groups) > 1:
            # If the group of a batch is aborted, its later tasks begin another group.
            raise aborted(replace(plan, group=min(groups)))
        complete_batch(log, replace(plan, group="".join(groups)), reports[0].batch, results)
        held = None if sink.request.in_one_task or not groups else _lock(log, reports[0])
        release_lock(log, held)


def _with_job_state(
    sink: Sink, refusal: ConditionalLogError, messages: Sequence[WriterCommitMessage | None]
) -> ConditionalLogError:
    """Return the error of the tasks with the state of the job in the log, if the log can be read."""
    report = next((each for each in messages if isinstance(each, BatchReport)), None)
    if isinstance(refusal, LayoutChangedError):
        refusal = refusal.with_message(refusal.message, resumable=False)
    job = sink.request.job if isinstance(refusal, ConflictError) else None
    with suppress(ConditionalLogError):
        with open_here(sink.request.spec.as_reached()) as log:
            plan = None if job is None else sink.plan_in(log, job)
            if plan is None and report is not None:
                return refused_batch(log, report.job, report.batch, refusal)
        if plan is not None:
            return with_job_state(sink.request.spec, plan, refusal, messages)
    return refusal


def _abort(sink: Sink, messages: Sequence[WriterCommitMessage | None], batch_id: int | None) -> None:
    """Abort the commit group of a failed atomic batch, and release its lock, so that other loads need not wait.

    If another run of the query has the lock, that run continues. A batch in one task was aborted by that task.
    """
    request, now_ms = sink.request, clock.now_ms()
    report = next((each for each in messages if isinstance(each, BatchReport)), None)
    if report is not None and batch_id is not None and request.whole and not request.in_one_task:
        with suppress(ConditionalLogError), open_here(for_last_requests(request.spec.as_reached())) as log:
            held = _lock(log, report)
            if held is not None:
                abort_group(log, with_group(log, sink.plan_in(log, report.job), batch_id))
                release_lock(log, held)
    job, planning_ms = (report.job, report.planning_ms) if report else (request.job, (now_ms, now_ms))
    record_aborted(request, messages, job=job, planning_ms=planning_ms, batch=batch_id)


def _lock(log: Backend, report: BatchReport) -> LoadLock | None:
    """Return the lock of the tasks of a batch. None if another run has it, or there is none."""
    held = log.load_locks().of(report.job)
    return held if held is not None and held.run == report.run else None
