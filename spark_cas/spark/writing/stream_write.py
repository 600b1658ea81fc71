"""The streaming sink: a micro-batch of a query, or of ``foreachBatch``, is appended exactly once.

Spark makes a writer for the tasks of each micro-batch and another, in another process, for its commit: both are made
of the options alone, and only the first is planned. What is known of a stream is in the log: its plan, and a ledger
entry for each partition.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import ConditionalLogError, ConflictError, OptionError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.grants import Grant
from spark_cas.core.micro_batch import Batch
from spark_cas.core.partitioner import Placement
from spark_cas.core.plan import Layout, PartitionResult, Plan, Progress
from spark_cas.log.backend import Backend
from spark_cas.log.load.granting import Applicant, give_back, obtain_grant
from spark_cas.log.load.in_one_transaction import in_one_transaction
from spark_cas.log.load.micro_batch import (
    begin_stream,
    complete_batch,
    ledger_before,
    load_batch,
    refused_batch,
)
from spark_cas.log.load.spool import Spool
from spark_cas.log.load.whole_load import abort_group, aborted, is_committed, with_group
from spark_cas.log.open import AnySpec, answered_before, for_a_look, for_one_transaction
from spark_cas.options.parse import GRANT_TIMEOUT_MS, WriteOptions
from spark_cas.spark.plain_errors import called_by_spark
from spark_cas.spark.records import by_partition
from spark_cas.spark.schema import check_write_schema, refuse_claims
from spark_cas.spark.versions import DataSourceStreamArrowWriter
from spark_cas.spark.worker import local_property, only_commits, open_here, planned_log, task_number
from spark_cas.spark.writing.complete_input import whole_input
from spark_cas.spark.writing.preflight import placement_of, preflight_limits, require_layout
from spark_cas.spark.writing.report import TaskReport, accepted, attempted
from spark_cas.spark.writing.sealed import unsealed
from spark_cas.spark.writing.stop_others import END_MS
from spark_cas.spark.writing.write import told_whole

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_RUN_ID = "spark.jobGroup.id"
"""Local properties of a query's tasks. A query's jobs are the group that its run is named after."""

_NOTHING_EXPECTED = ExpectedOffsets("none")


@dataclass(frozen=True, slots=True)
class Sink:
    """What the options say of a stream: all that a commit needs."""

    spec: AnySpec
    job: str | None
    """None where none is named: the query's id is, which only its tasks are told."""
    expected_offsets: ExpectedOffsets
    whole: bool
    """Whether the rows of all partitions of a batch become visible in one step."""
    placement: Placement | None
    """How the rows were assigned to partitions; None in a sink that only commits, or if their writer did that."""

    @property
    def in_one_task(self) -> bool:
        """Whether one task has all rows of a batch, and makes them visible itself."""
        return self.whole and self.spec.has_brokers

    def plan_in(self, log: Backend, job: str, partition: int = 0) -> Plan:
        """The plan of the stream under this job name. Raises what `begin_stream` does."""
        return begin_stream(log, job, self.expected_offsets, partition, whole=self.whole, placement=self.placement)


@dataclass(frozen=True, slots=True)
class BatchTask(Sink):
    """All that a task needs: plain values, the same for every attempt."""

    layout: Layout
    plan: Plan | None
    """None where no job is named."""
    ledger: tuple[Progress, ...]
    """What the log held of the stream before the batch (`ledger_before`), where the driver knew its name."""
    batch_id: int | None
    """The batch, where Spark does not tell its tasks."""
    run: str | None
    """Identity of this write, where the run of the query is not."""
    order_by: tuple[str, ...] | None
    """None where nothing fixes the order of the rows; empty where they come in one."""
    limits: ChunkLimits
    fenced_wait_ms: int

    def plan_in(self, log: Backend, job: str, partition: int = 0) -> Plan:
        """As of when the batch was planned, where it was."""
        return self.plan or Sink.plan_in(self, log, job, partition)


@dataclass(frozen=True, kw_only=True)
class BatchReport(TaskReport):
    """The commit message of a task, with rows or without. The driver is not told of which query it is."""

    job: str
    batch: Batch
    run: str
    """Which write of the batch the task is of."""
    group: str = ""
    """The group that the rows were appended to, if any were."""


def plan_stream_write(options: WriteOptions, schema: StructType) -> "StreamWriter":
    """The writer of a query's micro-batch: what can be checked is, and the plan is pinned or taken again.

    Where Spark asks for it to commit what tasks have written, that was done when these were planned.
    """
    # For each batch anew: nearly always the brokers were reached for the batch before.
    options = replace(options, spec=answered_before(options.spec))
    return StreamWriter(_sink(options) if only_commits() else _task(options, schema, run=None))


def plan_batch_write(options: WriteOptions, schema: StructType) -> "BatchWriter":
    """The writer of one batch within ``foreachBatch``, likewise."""
    return BatchWriter(_task(options, schema, run=uuid.uuid4().hex))


@called_by_spark
class StreamWriter(DataSourceStreamArrowWriter):
    """Appends each micro-batch of a streaming query exactly once, or says why not."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Append a task's rows of the batch. A batch that comes again is completed or verified."""
        if not isinstance(self.sink, BatchTask):
            msg = "a writer that was made for a commit has no plan for tasks"
            raise TypeError(msg)
        return _write(self.sink, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
        """Raise what was refused, once, which stops the query."""
        if None in messages:
            # Each task of a micro-batch has a message. Spark 4.2 takes a continuous query without a word, and then
            # hands no rows to a sink in Python and commits all the same.
            raise OptionError(
                "the query has a continuous trigger, in which Spark gives no rows to a sink in Python: nothing was "
                "appended. Use .trigger(processingTime=...) or .trigger(availableNow=True), and a new checkpoint."
            )
        _commit(self.sink, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was appended is known to the ledger when the batch comes again, unless it is so as a whole."""
        _abort(self.sink, messages, batchId)


@called_by_spark
class BatchWriter(DataSourceArrowWriter):
    """Appends one batch within ``foreachBatch`` exactly once, or says why not."""

    def __init__(self, task: BatchTask) -> None:
        self.task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Append a task's rows of the batch. A batch that comes again is completed or verified."""
        return _write(self.task, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Raise what was refused, once."""
        _commit(self.task, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was appended is known to the ledger when the batch comes again, unless it is so as a whole."""
        _abort(self.task, messages, self.task.batch_id)


def _task(options: WriteOptions, schema: StructType, run: str | None) -> BatchTask:
    mark = check_write_schema(schema, routed=options.routed)
    if mark is not None:
        # Whoever routed the rows asked the log for its layout.
        options = replace(options, spec=answered_before(options.spec))
        mark.require_whole()
    refuse_claims(schema, "a micro-batch has no offsets that its query could know. Drop the column.")
    placement = placement_of(options, mark)
    with open_here(options.spec) as log:
        layout = require_layout(log, options, mark, placement)
        # A writer is made for each batch: notes that come with every one are read by nobody.
        begun = options.job is not None and log.plan(options.job) is not None
        limits, _ = preflight_limits(log, options.limits, begun=begun, placement=placement)
        job, wanted = options.job, options.expected_offsets
        plan = None if job is None else begin_stream(log, job, wanted, whole=options.whole, placement=placement)
        # Once for all tasks, and before any is at work, whose transactions the look would wait for.
        ledger = () if plan is None else ledger_before(log, plan)
    return BatchTask(
        spec=options.spec,
        job=options.job,
        expected_offsets=options.expected_offsets,
        whole=options.whole,
        placement=placement,
        layout=layout,
        plan=plan,
        ledger=ledger,
        batch_id=options.batch_id,
        run=run,
        order_by=options.order_by or (() if mark is not None and mark.sorted else None),
        limits=limits,
        fenced_wait_ms=options.fenced_wait_ms,
    )


def _sink(options: WriteOptions) -> Sink:
    return Sink(options.spec, options.job, options.expected_offsets, options.whole, placement=None)


def _write(task: BatchTask, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
    rows = whole_input(iterator)
    rows = unsealed(rows) if task.in_one_task else rows
    batch = _batch(task)
    job = batch.query if task.plan is None else task.plan.job
    report = attempted(by_partition(rows, task.layout.partitions), lambda pairs: _append(task, job, batch, pairs))
    if isinstance(report, BatchReport):
        return report
    rejection, partitions = report.rejection, report.partitions
    return BatchReport(rejection=rejection, partitions=partitions, job=job, batch=batch, run=_run(task, batch))


def _append(task: BatchTask, job: str, batch: Batch, pairs: Iterator[tuple[int, pa.RecordBatch]]) -> BatchReport:
    run = _run(task, batch)
    first = next(pairs, None)
    if first is None:
        return BatchReport(job=job, batch=batch, run=run)
    rows = chain([first], pairs)
    if task.in_one_task:
        return _append_in_one_transaction(task, job, batch, rows)
    with planned_log(task.spec, task.layout.log_id, appending=True) as log:
        plan = task.plan_in(log, job, first[0])
        if task.whole and not is_committed(log, with_group(log, plan, batch.id)):
            # Else two could wait for each other. The first task of a batch has it for all of them.
            applicant = Applicant(job, run, wait_seconds=GRANT_TIMEOUT_MS / 1000, batch_id=batch.id)
            obtain_grant(log, applicant, _NOTHING_EXPECTED, whole=True)
        plan = with_group(log, plan, batch.id)
        results = _loading(task, log, plan, batch, rows)()
    return BatchReport(results, job=job, batch=batch, run=run, group=plan.group)


def _append_in_one_transaction(
    task: BatchTask, job: str, batch: Batch, pairs: Iterable[tuple[int, pa.RecordBatch]]
) -> BatchReport:
    with Spool(pairs) as rows, planned_log(for_one_transaction(task.spec, rows.bytes), task.layout.log_id) as log:
        plan = with_group(log, task.plan_in(log, job), batch.id)
        results = in_one_transaction(
            log,
            plan,
            _loading(task, log, plan, batch, rows),
            fenced_wait_seconds=task.fenced_wait_ms / 1000,
        )
    return BatchReport(results, job=job, batch=batch, run=_run(task, batch), group=plan.group)


def _loading(
    task: BatchTask, log: Backend, plan: Plan, batch: Batch, rows: Iterable[tuple[int, pa.RecordBatch]]
) -> Callable[[], tuple[PartitionResult, ...]]:
    return partial(
        load_batch,
        log,
        plan,
        batch,
        rows,
        task=f"{_run(task, batch)}/{task_number()}",
        limits=task.limits,
        order_by=task.order_by,
        ledger=task.ledger,
        fenced_wait_seconds=task.fenced_wait_ms / 1000,
    )


def _run(task: BatchTask, batch: Batch) -> str:
    return f"{task.run or local_property(_RUN_ID) or uuid.uuid4().hex}/{batch.id}"


def _batch(task: BatchTask) -> Batch:
    query = local_property(_QUERY_ID)
    number = local_property(_BATCH_ID) if task.batch_id is None else task.batch_id
    if not query or number is None:
        raise OptionError(
            "this write is part of a stream, but Spark tells of no streaming query whose batch it is: option batchId "
            "works only within foreachBatch, on the thread that calls it, and not with Spark Connect. Nothing was "
            "appended. Write there, or leave batchId out: then each write is a load of its own and needs its own job "
            "name, such as 'flights-17' for batch 17."
        )
    return Batch(query, int(number))


def _commit(sink: Sink, messages: Sequence[WriterCommitMessage | None]) -> None:
    try:
        reports = [report for report in accepted(messages) if isinstance(report, BatchReport)]
    except ConditionalLogError as refusal:
        raise _told(sink, refusal, messages) from None
    if not reports:
        return
    results = [result for report in reports for result in report.results]
    groups = {report.group for report in reports if report.group}
    with open_here(answered_before(sink.spec)) as log:
        plan = sink.plan_in(log, reports[0].job)
        if len(groups) > 1:
            # A task begins another group where that of the others was aborted.
            raise aborted(replace(plan, group=min(groups)))
        complete_batch(log, replace(plan, group="".join(groups)), reports[0].batch, results)
        held = None if sink.in_one_task or not groups else _grant(log, reports[0])
        give_back(log, held)


def _told(
    sink: Sink, refusal: ConditionalLogError, messages: Sequence[WriterCommitMessage | None]
) -> ConditionalLogError:
    """A refusal of tasks with what is in the log, as far as it can be asked: the others have appended."""
    report = next((each for each in messages if isinstance(each, BatchReport)), None)
    job = sink.job if isinstance(refusal, ConflictError) else None
    with suppress(ConditionalLogError):
        with open_here(answered_before(sink.spec)) as log:
            plan = None if job is None else sink.plan_in(log, job)
            if plan is None and report is not None:
                return refused_batch(log, report.job, report.batch, refusal)
        if plan is not None:
            return told_whole(sink.spec, plan, refusal, messages)
    return refusal


def _abort(sink: Sink, messages: Sequence[WriterCommitMessage | None], batch_id: int | None) -> None:
    """Keep nobody waiting any more for a batch that failed: of one as a whole nothing becomes visible.

    Unless another run goes on with it. A transaction was aborted by its task.
    """
    report = next((each for each in messages if isinstance(each, BatchReport)), None)
    if not sink.whole or sink.in_one_task or batch_id is None or report is None:
        return
    with suppress(ConditionalLogError), open_here(for_a_look(answered_before(sink.spec), END_MS)) as log:
        held = _grant(log, report)
        if held is not None:
            abort_group(log, with_group(log, sink.plan_in(log, report.job), batch_id))
            give_back(log, held)


def _grant(log: Backend, report: BatchReport) -> Grant | None:
    """The grant that the tasks of a batch have; None where another run has it now, or none had one."""
    held = log.grants().of(report.job)
    return held if held is not None and held.run == report.run else None
