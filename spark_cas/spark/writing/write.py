"""The batch writer: planned once on the driver, run by each task, completed by the driver."""

import logging
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_cas.core.errors import (
    ConditionalLogError,
    InputError,
    LayoutChangedError,
    RefusedError,
    StorageError,
)
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.guarantee import AT_LEAST_ONCE, EXACTLY_ONCE, OFF, REQUESTED
from spark_cas.core.load_locks import LoadLock
from spark_cas.core.partitioner import Placement
from spark_cas.core.plan import BY_PARTITION, Completion, Layout, PartitionResult, Plan
from spark_cas.log import clock
from spark_cas.log.backend import Backend
from spark_cas.log.jobs import log_removed_rows
from spark_cas.log.load.after_expansion import with_resumable
from spark_cas.log.load.append_rows import append_rows
from spark_cas.log.load.atomic_load import Spool, abort_group, abort_left, in_one_transaction
from spark_cas.log.load.cancelling import TaskRun
from spark_cas.log.load.locking import Applicant, acquire_lock, is_replaced, process_name, release_lock
from spark_cas.log.load.planning import (
    complete_job,
    fresh_job_name,
    pin_plan,
    refused_as_a_whole,
    rows_before,
    rows_of_run,
)
from spark_cas.log.open import AnySpec
from spark_cas.options.request import WriteRequest
from spark_cas.spark.arrow_rows import by_partition
from spark_cas.spark.plain_errors import called_by_spark
from spark_cas.spark.schema import EndMarkers, Mark, check_write_schema, refuse_claims
from spark_cas.spark.worker import open_here, planned_log, task_number
from spark_cas.spark.writing.blind_write import BlindWriter, plan_blind_write, refuse_conditions
from spark_cas.spark.writing.end_markers import has_end, require_markers, task_rows
from spark_cas.spark.writing.preflight import placement_by_key, placement_of, preflight_limits, require_layout
from spark_cas.spark.writing.report import (
    TaskReport,
    accepted,
    appended_rows,
    attempted,
    check_report,
    for_last_requests,
    is_rejected,
    measured,
    measured_plan,
    partitions_of_rejected,
    put_report,
    record_aborted,
    stop_others,
)
from spark_cas.spark.writing.verify import hash_rows, require_same

_LOG = logging.getLogger("spark_cas")


@dataclass(frozen=True, slots=True)
class WriteTask:
    """The values that a task needs, the same for each attempt."""

    request: WriteRequest
    """The request, with limits that include those of the log."""
    plan: Plan
    run: str
    """The id of this write. It distinguishes a rerun of the job from a second task of this run."""
    planning_ms: tuple[int, int]
    """When the driver began and finished to plan the run, milliseconds since 1970."""
    rows_before: tuple[int, ...] | None
    """The rows of the job in each partition before the run; empty if there were none, None if that is not known."""
    completion: Completion | None
    """The completion of the job if it was complete before this write. Then nothing is appended."""
    end_markers: EndMarkers
    lock: LoadLock | None
    """The lock that makes other loads wait for this one. None if it has no conditions on partitions."""

    @property
    def in_one_chunk(self) -> bool:
        """Whether all rows of a partition are one chunk.

        This also applies to the rounds of `append_if_unchanged`, which find their rows by position.
        """
        return self.request.atomic or bool(self.plan.round_of)


@dataclass(frozen=True, slots=True)
class CheckedWrite:
    """A write that passed the checks before its plan, and has its load lock."""

    request: WriteRequest
    mark: Mark | None
    layout: Layout
    placement: Placement | None
    job: str
    run: str
    started_ms: int
    completion: Completion | None
    lock: LoadLock | None

    def pin(self, log: Backend) -> "ConditionalLogWriter":
        """Pin the plan, and return the writer. If the plan is rejected, release the lock."""
        request, completion = self.request, self.completion
        try:
            plan = self.plan(log)
            if plan.job != self.job or request.idempotence == REQUESTED:
                completion = log.completion(plan.job)
            before = () if completion else rows_before(log, plan)
        except BaseException as error:
            if request.whole and isinstance(error, RefusedError):
                with suppress(ConditionalLogError):
                    abort_left(log, self.job)
            release_lock(log, self.lock)
            raise
        task = WriteTask(
            request=request,
            plan=plan,
            run=self.run,
            planning_ms=(self.started_ms, clock.now_ms()),
            rows_before=before,
            completion=completion,
            end_markers=self.mark.end_markers if self.mark else "none",
            lock=self.lock,
        )
        return ConditionalLogWriter(task)

    def plan(self, log: Backend, *, record: bool = True) -> Plan:
        """Return the plan of the write, and record it unless ``record`` is false.

        Raises LayoutChangedError if partitions were added since the checks, and the errors of `pin_plan`.
        """
        request, mark = self.request, self.mark
        plan = pin_plan(
            log,
            self.job,
            request.expected_offsets,
            compare=request.compare,
            round_of=request.round_of,
            earlier=mark.earlier if mark else (),
            whole=request.whole,
            input_digest=mark.input if mark else "",
            placement=self.placement,
            topics=request.topics,
            record=record,
        )
        if plan.layout_epoch != self.layout.epoch:
            raise LayoutChangedError(
                "partitions were added while the write was planned. Nothing was appended. Route the rows again.",
                resumable=True,
            )
        return plan

    def release(self) -> None:
        """Release the lock of a write that does not begin, if the log can be reached."""
        if self.lock is not None:
            with suppress(ConditionalLogError), open_here(for_last_requests(self.request.spec)) as log:
                release_lock(log, self.lock)


def plan_write(request: WriteRequest, schema: StructType) -> "ConditionalLogWriter | BlindWriter":
    """Check the write as far as possible before tasks run, create a missing log, and pin the plan.

    Return a `BlindWriter`, which has no plan, if the write is not exactly-once. That is so if option idempotence is
    off, or if exactly-once is only requested and not available.
    """
    with measured_plan(request), checked_write(request, schema) as (log, write):
        result = write.pin(log) if isinstance(write, CheckedWrite) else write
    warn_of_missing_job(request)
    return result


def warn_of_missing_job(*requests: WriteRequest) -> None:
    """Log once that a write, to one or more topics, has no job. With ``idempotence=off`` it cannot have one."""
    if any(each.job is None and each.idempotence != OFF for each in requests):
        _LOG.warning(
            "the options of this write name no job, so a rerun appends all its rows again. Set option job, the name "
            "of the load"
        )


@contextmanager
def checked_write(
    request: WriteRequest, schema: StructType
) -> "Iterator[tuple[Backend, CheckedWrite | BlindWriter]]":
    """Open the log for a ``with`` block, check the write, create a missing log, and acquire the load lock.

    Yield the log and the write, as a `BlindWriter` in the cases of `plan_write`.
    """
    in_any_task = request.idempotence == OFF
    started_ms = clock.now_ms()
    mark = check_write_schema(
        schema,
        routed=request.routed,
        in_any_task=in_any_task,
        on_brokers=request.spec.has_brokers,
        names=request.names,
    )
    if mark is not None:
        mark.require_options(request.names)
        # `route` has already reached the log.
        request = replace(request, spec=request.spec.as_reached())
    if request.idempotence == OFF:
        refuse_conditions(request, schema, AT_LEAST_ONCE)
    check_report(request.report)
    if not request.checked:
        refuse_claims(
            schema,
            "checkExpectedOffsets is false for this write or in its log's defaults. Drop the column, or set "
            "checkExpectedOffsets=true.",
        )
    markers: EndMarkers = mark.end_markers if mark else "none"
    in_one_chunk = request.atomic or bool(request.round_of)
    require_markers(markers, in_one_task=request.in_one_task, in_one_chunk=in_one_chunk)
    placement = placement_of(request, mark)
    job = fresh_job_name() if request.job is None else request.job
    run, lock = uuid.uuid4().hex, None
    with open_here(request.spec) as log:
        by_key = "partition" not in schema.fieldNames()
        placement = placement_by_key(log, request) if by_key else placement
        layout = require_layout(log, request, mark, placement)
        completion = _completion(log, request)
        if completion is None:
            limits, guarantee = preflight_limits(
                log, request.limits, idempotence=request.idempotence, placement=placement, compare=request.compare
            )
            request = replace(request, limits=limits)
            if guarantee != EXACTLY_ONCE:
                refuse_conditions(request, schema, guarantee)
                if mark is not None:
                    mark.require_whole()
                partitioner = placement.partitioner if placement and by_key else None
                yield (
                    log,
                    plan_blind_write(
                        log, request, layout, guarantee, mark=mark, partitioner=partitioner, started_ms=started_ms
                    ),
                )
                return
            lock = _lock(log, request, job, run, layout.partitions)
        yield log, CheckedWrite(request, mark, layout, placement, job, run, started_ms, completion, lock)


def _lock(log: Backend, request: WriteRequest, job: str, run: str, partitions: int) -> LoadLock | None:
    """Wait for other loads, and return a lock for the partitions that the write must not share with them."""
    wanted = request.expected_offsets if request.compare == BY_PARTITION else ExpectedOffsets("none")
    # The parent of the planning process is the driver, or a process that ends with the driver.
    driver = process_name(os.getppid())
    applicant = Applicant(job, run, driver, request.lock_wait_timeout_ms / 1000)
    return acquire_lock(log, applicant, wanted, whole=request.whole, partitions=partitions)


def _completion(log: Backend, request: WriteRequest) -> Completion | None:
    """Return the completion of the job, or None if it is not complete.

    The result is also None if the registry cannot be read, and exactly-once is only requested.
    """
    if request.job is None:
        return None
    try:
        return log.completion(request.job)
    except StorageError:
        if request.idempotence == REQUESTED:
            return None
        raise


@called_by_spark
class ConditionalLogWriter(DataSourceArrowWriter):
    """Appends the rows of each log partition exactly once, at the expected offset, or raises an error."""

    def __init__(self, task: WriteTask) -> None:
        self.task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Append the rows of one task, and return its report, as `attempted` does.

        A second attempt resumes after the rows of the first.
        """
        task = self.task
        rows = task_rows(iterator, task.plan.partitions, task.end_markers)
        pairs = by_partition(rows, task.plan.partitions)
        if task.completion is not None:
            return attempted(pairs, lambda checked: TaskReport(hashed=hash_rows(checked)))
        if task.request.in_one_task:
            run = TaskRun()
            return attempted(pairs, partial(self._append_in_one_transaction, run), run=run)
        run = TaskRun(task.run, task.planning_ms[1], task.rows_before)
        if task.plan.round_of:
            # The next round of append_if_unchanged retries a conflict, and keeps the rows of the other tasks.
            return attempted(pairs, partial(self._append, run), run=run)
        cancel = partial(stop_others, task.request.spec, task.plan.log_id, task.run)
        return attempted(pairs, partial(self._append, run), run=run, cancel=cancel)

    def _append(self, run: TaskRun, pairs: Iterator[tuple[int, pa.RecordBatch]]) -> TaskReport:
        first = next(pairs, None)
        if first is None:
            return TaskReport()
        with planned_log(self.task.request.spec, self.task.plan.log_id, appending=True) as log:
            return TaskReport(self._load(log, run, chain([first], pairs)))

    def _append_in_one_transaction(self, run: TaskRun, pairs: Iterator[tuple[int, pa.RecordBatch]]) -> TaskReport:
        task = self.task
        with Spool(pairs) as rows:
            if not rows:
                return TaskReport()
            with planned_log(task.request.spec.with_transaction_of(rows.bytes), task.plan.log_id) as log:

                def append() -> tuple[PartitionResult, ...]:
                    run.restart()
                    return self._load(log, run, rows)

                wait_seconds = task.request.fenced_retry_wait_ms / 1000
                return TaskReport(in_one_transaction(log, task.plan, append, fenced_retry_wait_seconds=wait_seconds))

    def _load(
        self, log: Backend, run: TaskRun, rows: Iterable[tuple[int, pa.RecordBatch]]
    ) -> tuple[PartitionResult, ...]:
        task = self.task
        return append_rows(
            log,
            task.plan,
            rows,
            task=f"{task.run}/{task_number()}",
            limits=task.request.limits,
            atomic=task.in_one_chunk,
            has_end=has_end(task.end_markers),
            fenced_retry_wait_seconds=task.request.fenced_retry_wait_ms / 1000,
            run=run,
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Record that the job is complete, and write the report file if the options name one.

        If tasks were rejected, this raises one error for all of them, with the rows that this run appended.
        """
        task = self.task
        with measured(task.request, messages, job=task.plan.display_name, planning_ms=task.planning_ms):
            completion = self._completed(messages)
            if task.request.report is not None:
                put_report(task.request.report, completion)

    def _completed(self, messages: list[WriterCommitMessage | None]) -> Completion:
        task = self.task
        try:
            reports = accepted(messages)
            if task.completion is not None:
                require_same(task.completion, {each.partition: each for report in reports for each in report.hashed})
        except ConditionalLogError as refusal:
            error = with_job_state(task.request.spec, task.plan, refusal, messages, self._with_rows)
            self.abort(messages)
            raise error from None
        if task.completion is not None:
            return task.completion
        with planned_log(task.request.spec, task.plan.log_id) as log:
            try:
                completion = complete_job(
                    log, task.plan, tuple(each for report in reports for each in report.results)
                )
                log_removed_rows(log, completion)
            except (RefusedError, InputError) as error:
                raise self._with_rows(log, with_resumable(error, task.plan, log), messages) from None
            finally:
                release_lock(log, task.lock)
        return completion

    def _with_rows(
        self, log: Backend, error: ConditionalLogError, messages: Iterable[WriterCommitMessage | None]
    ) -> ConditionalLogError:
        """Return the error with the visible rows that this run appended, if the log can be read."""
        task, rows = self.task, None
        with suppress(ConditionalLogError):
            reported = appended_rows(messages)
            rows = {} if task.completion else rows_of_run(log, task.plan, task.run, task.rows_before, reported)
        if rows is None:
            return error
        message = error.message
        if task.plan.whole and not any(rows.values()):
            message += " A load with atomic=load shows no row before it is complete."
        return error.with_message(message, appended_rows={each: rows[each] for each in sorted(rows) if rows[each]})

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Release the lock and remove the cancellation. No row of an atomic load becomes visible.

        Visible rows are a prefix of the input, and the same job resumes after them. If another run of the job has the
        lock, that run continues.
        """
        task, rejected = self.task, is_rejected(messages)
        plan = task.plan
        if task.completion is None and (plan.whole or task.lock or rejected):
            spec = for_last_requests(task.request.spec)
            with suppress(ConditionalLogError), planned_log(spec, plan.log_id) as log:
                if rejected:
                    with suppress(ConditionalLogError):
                        log.remove_cancelled(task.run)
                # Without a lock no other load waits, and another run of the job may be active.
                if task.lock and not is_replaced(log, task.lock):
                    abort_group(log, plan)
                release_lock(log, task.lock)
        record_aborted(task.request, messages, job=plan.display_name, planning_ms=task.planning_ms)


def with_job_state(
    spec: AnySpec,
    plan: Plan,
    refusal: ConditionalLogError,
    messages: Sequence[WriterCommitMessage | None],
    with_rows: Callable[[Backend, ConditionalLogError, Sequence[WriterCommitMessage | None]], ConditionalLogError]
    | None = None,
) -> ConditionalLogError:
    """Return the error of the tasks with the state of the job (`refused_as_a_whole`), which ``with_rows`` can extend.

    If the log cannot be read, return the error of the tasks. It has no next offsets, because those of other
    partitions are not known.
    """
    refusal = with_resumable(refusal, plan)
    try:
        with planned_log(spec, plan.log_id) as log:
            refusal = with_resumable(refusal, plan, log)
            whole = refused_as_a_whole(log, plan, refusal, partitions_of_rejected(messages))
            return whole if with_rows is None else with_rows(log, whole, messages)
    except ConditionalLogError:
        return refusal.with_message(refusal.message, next_offsets=None)
