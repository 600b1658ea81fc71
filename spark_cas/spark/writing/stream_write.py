"""The streaming sink: a micro-batch of a query, or of ``foreachBatch``, is appended exactly once.

Spark makes a writer for the tasks of each micro-batch and another, in another process, for its commit: both are made
of the options alone. What is known of a stream is in the log: its plan, and a ledger entry for each partition.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import ConflictError, OptionError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.micro_batch import Batch
from spark_cas.core.plan import Layout, Plan
from spark_cas.log.load.micro_batch import begin_stream, load_batch, require_whole_batch
from spark_cas.log.open import AnySpec, answered_before, open_log
from spark_cas.options.parse import WriteOptions
from spark_cas.spark.plain_errors import called_by_spark
from spark_cas.spark.records import by_partition
from spark_cas.spark.schema import check_write_schema, refuse_claims
from spark_cas.spark.worker import local_property, planned_log, task_number
from spark_cas.spark.writing.complete_input import whole_input
from spark_cas.spark.writing.report import TaskReport, accepted, attempted
from spark_cas.spark.writing.write import preflight_limits, require_layout, told_whole

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_RUN_ID = "spark.jobGroup.id"
"""Local properties of a query's tasks. A query's jobs are the group that its run is named after."""


@dataclass(frozen=True, slots=True)
class BatchTask:
    """All that a task needs: plain values, the same for every attempt."""

    spec: AnySpec
    layout: Layout
    plan: Plan | None
    """None where no job is named: the query's id is, which only its tasks are told."""
    expected_offsets: ExpectedOffsets
    batch_id: int | None
    """The batch, where Spark does not tell its tasks."""
    run: str | None
    """Identity of this write, where the run of the query is not."""
    order_by: tuple[str, ...] | None
    """None where nothing fixes the order of the rows; empty where they come in one."""
    limits: ChunkLimits
    fenced_wait_ms: int


@dataclass(frozen=True, kw_only=True)
class BatchReport(TaskReport):
    """The commit message of a task, with rows or without. The driver is not told of which query it is."""

    job: str
    batch: Batch


def plan_stream_write(options: WriteOptions, schema: StructType) -> "StreamWriter":
    """The writer of a query's micro-batches: what can be checked is, and the plan is pinned or taken again."""
    # For each batch anew: nearly always the brokers were reached for the batch before.
    return StreamWriter(_task(replace(options, spec=answered_before(options.spec)), schema, run=None))


def plan_batch_write(options: WriteOptions, schema: StructType) -> "BatchWriter":
    """The writer of one batch within ``foreachBatch``, likewise."""
    return BatchWriter(_task(options, schema, run=uuid.uuid4().hex))


@called_by_spark
class StreamWriter(DataSourceStreamArrowWriter):
    """Appends each micro-batch of a streaming query exactly once, or says why not."""

    def __init__(self, task: BatchTask) -> None:
        self.task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Append a task's rows of the batch. A batch that comes again is completed or verified."""
        return _write(self.task, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
        """Raise what was refused, once, which stops the query."""
        if None in messages:
            # Each task of a micro-batch has a message. Spark 4.2 takes a continuous query without a word, and then
            # hands no rows to a sink in Python and commits all the same.
            raise OptionError(
                "the query has a continuous trigger, in which Spark gives no rows to a sink in Python: nothing was "
                "appended. Use .trigger(processingTime=...) or .trigger(availableNow=True), and a new checkpoint."
            )
        _commit(self.task, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: what was appended is known to the ledger when the batch comes again."""


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
        """Nothing: what was appended is known to the ledger when the batch comes again."""


def _task(options: WriteOptions, schema: StructType, run: str | None) -> BatchTask:
    mark = check_write_schema(schema, routed=options.routed)
    if mark is not None:
        # Whoever routed the rows asked the log for its layout.
        options = replace(options, spec=answered_before(options.spec))
        mark.require_whole()
    refuse_claims(schema, "a micro-batch has no offsets that its query could know. Drop the column.")
    with open_log(options.spec) as log:
        layout = require_layout(log, options, mark)
        # A writer is made for each batch: notes that come with every one are read by nobody.
        begun = options.job is not None and log.plan(options.job) is not None
        limits, _ = preflight_limits(log, options.limits, begun=begun)
        plan = None if options.job is None else begin_stream(log, options.job, options.expected_offsets)
    return BatchTask(
        spec=options.spec,
        layout=layout,
        plan=plan,
        expected_offsets=options.expected_offsets,
        batch_id=options.batch_id,
        run=run,
        order_by=options.order_by or (() if mark is not None and mark.sorted else None),
        limits=limits,
        fenced_wait_ms=options.fenced_wait_ms,
    )


def _write(task: BatchTask, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
    return attempted(by_partition(whole_input(iterator), task.layout.partitions), lambda pairs: _append(task, pairs))


def _append(task: BatchTask, pairs: Iterator[tuple[int, pa.RecordBatch]]) -> BatchReport:
    batch = _batch(task)
    job = batch.query if task.plan is None else task.plan.job
    first = next(pairs, None)
    if first is None:
        return BatchReport(job=job, batch=batch)
    run = task.run or local_property(_RUN_ID) or uuid.uuid4().hex
    with planned_log(task.spec, task.layout.log_id) as log:
        plan = task.plan or begin_stream(log, job, task.expected_offsets, partition=first[0])
        results = load_batch(
            log,
            plan,
            batch,
            chain([first], pairs),
            task=f"{run}/{task_number()}",
            limits=task.limits,
            order_by=task.order_by,
            fenced_wait_seconds=task.fenced_wait_ms / 1000,
        )
    return BatchReport(results, job=job, batch=batch)


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


def _commit(task: BatchTask, messages: Sequence[WriterCommitMessage | None]) -> None:
    try:
        reports = [report for report in accepted(messages) if isinstance(report, BatchReport)]
    except ConflictError as refusal:
        raise refusal if task.plan is None else told_whole(task.spec, task.plan, refusal, messages) from None
    if reports:
        results = [result for report in reports for result in report.results]
        with open_log(answered_before(task.spec)) as log:
            require_whole_batch(log, reports[0].job, reports[0].batch, results)
