"""Reports of tasks to the driver: the result or error of a write, its log line, metrics and lineage, and its end."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from spark_cas.core.check_name import is_fresh
from spark_cas.core.errors import (
    ConditionalLogError,
    ConflictError,
    ErrorKind,
    FencedError,
    LogNotSharedError,
    MissingRowsError,
    NotRoutedError,
    NotStoredError,
    OptionError,
    StorageError,
    UnknownOutcomeError,
)
from spark_cas.core.outcome import Tally
from spark_cas.core.plan import Completion, PartitionResult
from spark_cas.core.recorded_fields import to_json
from spark_cas.log import clock, timing
from spark_cas.log.load.cancelling import Rejection, RunCancelledError, TaskRun, cancel_run
from spark_cas.log.log_lines import log_write
from spark_cas.log.open import AnySpec
from spark_cas.options import report_file
from spark_cas.options.lineage import send_run
from spark_cas.options.publish_metrics import Measurement, publish
from spark_cas.options.request import WriteRequest
from spark_cas.spark.worker import planned_log
from spark_cas.spark.writing.verify import Hashed


@dataclass(frozen=True)
class TaskReport(WriterCommitMessage):
    """The commit message of a task."""

    results: tuple[PartitionResult, ...] = ()
    hashed: tuple[Hashed, ...] = ()
    """The hashes of the rows, instead of results, if the job was already complete."""
    rejection: Rejection | None = None
    """The definite error of this task, or of the task that cancelled the run."""
    appended: tuple[tuple[int, int | None], ...] = ()
    """The rows that the run appended to the partitions of this task, as (partition, rows); None: not known."""
    partitions: tuple[int, ...] = ()
    """Of a task that did not complete, the log partitions of the rows that it read."""
    tally: Tally = field(default_factory=Tally)
    """The chunks that the attempt of the task appended."""


_ABORTED = "ABORTED"
"""The error of a write that Spark aborts, in place of a kind. Spark reports the cause only to the caller."""
# A cause precedes its consequences: rows that are not routed can appear as changed input in other partitions.
_MOST_IMPORTANT_FIRST = (
    ErrorKind.NOT_ROUTED,
    ErrorKind.LOG_NOT_SHARED,
    ErrorKind.LAYOUT_CHANGED,
    ErrorKind.CHUNK_DAMAGED,
    ErrorKind.TRUNCATED,
    ErrorKind.PROGRESS_LOST,
    ErrorKind.JOB_MISMATCH,
    ErrorKind.CHECKPOINT_MISMATCH,
    ErrorKind.INPUT_CHANGED,
    ErrorKind.CONFLICT,
)


def check_report(file: str | None) -> None:
    """Raise OptionError if the report file cannot be written, as far as a check before the append can detect."""
    if file is not None and not report_file.may_be_put(file):
        raise OptionError(
            "option report names no file that can be written where Spark's driver runs. Nothing was appended. Name a "
            "file in a folder that is there and may be written."
        )


def put_report(file: str, completion: Completion) -> None:
    """Write the completion of a load into a file, as JSON.

    Raises StorageError if this fails. The rows are already appended then.
    """
    try:
        report_file.put(file, to_json(completion) + "\n")
    except OSError:
        raise StorageError(
            "the rows are appended, and the file that option report names could not be written where Spark's driver "
            "runs. Do not append them again: name a file in a folder that is there the next time."
        ) from None


def attempted(
    pairs: Iterable[tuple[int, pa.RecordBatch]],
    append: Callable[[Iterator[tuple[int, pa.RecordBatch]]], TaskReport],
    *,
    run: TaskRun | None = None,
    cancel: Callable[[Rejection], None] = lambda _: None,
) -> TaskReport:
    """Append the rows of one attempt of a task, and return its report.

    A definite error is a part of the report, because Spark retries a task that raises. Only errors that a retry may
    overcome are raised: FencedError, UnknownOutcomeError and StorageError, except NotStoredError. ``run`` counts the
    rows that ``append`` appends. ``cancel`` gets a definite error, to stop the other tasks.
    """
    run = run or TaskRun()
    null_keys: dict[int, int] = {}

    def watched() -> Iterator[tuple[int, pa.RecordBatch]]:
        for partition, records in pairs:
            null_keys[partition] = null_keys.get(partition, 0) + records.column("key").null_count
            yield partition, records

    try:
        report = append(watched())
        results = [replace(each, null_keys=null_keys.get(each.progress.partition)) for each in report.results]
        return replace(report, results=tuple(results), appended=run.appended, tally=run.tally)
    except RunCancelledError as cancelled:
        rejection = cancelled.rejection
    except ConditionalLogError as error:
        may_pass = isinstance(error, FencedError | UnknownOutcomeError | StorageError)
        if may_pass and not isinstance(error, NotStoredError):
            raise
        rejection = Rejection.of(error, tuple(sorted(null_keys)))
        # Spark ignores the report of an attempt that it has cut off, and retries.
        if not isinstance(error, MissingRowsError):
            cancel(rejection)
    if rejection.kind == ConflictError.kind:
        # The error of a conflict names all partitions that differ, so that the next run finds no further one.
        _read_on(watched())
    partitions = tuple(sorted(null_keys))
    return TaskReport(rejection=rejection, appended=run.appended, partitions=partitions, tally=run.tally)


def _read_on(rows: Iterable[object]) -> None:
    """Read the remaining rows of a task, for a short time, to learn their partitions."""
    ends = time.monotonic() + 4 * timing.current().best_effort
    with suppress(ConditionalLogError, EOFError):
        for _ in rows:
            if time.monotonic() > ends:
                return


def accepted(messages: Iterable[WriterCommitMessage | None], *, in_any_task: bool = False) -> list[TaskReport]:
    """Return the reports of a write after all its tasks have ended.

    If tasks were rejected, raises one error for all of them. Raises NotRoutedError if two tasks had rows of one
    partition, unless any task may have them.
    """
    reports = [message for message in messages if isinstance(message, TaskReport)]
    refusal = worst_refusal(reports)
    if refusal is not None:
        raise refusal
    if not in_any_task:
        require_one_task_each(reports)
    return reports


def worst_refusal(reports: Iterable[TaskReport]) -> ConditionalLogError | None:
    """Return one error for all rejections: the most important one, with the partitions of the others."""
    # Tasks that stopped because the run was cancelled report the error of the task that cancelled it.
    rejections = {report.rejection for report in reports if report.rejection is not None}
    if not rejections:
        return None
    first, *others = sorted(rejections, key=lambda each: (rank_of(each.kind), each.partitions, each.message))
    error = first.error()
    if others:
        return error.with_message(f"{error.message} Refused as well: {'; '.join(_brief(other) for other in others)}.")
    return error


def is_rejected(messages: Iterable[WriterCommitMessage | None]) -> bool:
    """Return whether a task reported a definite error."""
    return any(isinstance(each, TaskReport) and each.rejection is not None for each in messages)


def partitions_of_rejected(messages: Iterable[WriterCommitMessage | None]) -> set[int]:
    """Return the log partitions of the rows that the tasks which did not complete had read."""
    return {partition for each in messages if isinstance(each, TaskReport) for partition in each.partitions}


def appended_rows(messages: Iterable[WriterCommitMessage | None]) -> dict[int, int | None]:
    """Return the rows that the tasks report as appended by this run, by partition; None: not known."""
    rows: dict[int, int | None] = {}
    for message in messages:
        for partition, count in message.appended if isinstance(message, TaskReport) else ():
            before = rows.get(partition, 0)
            rows[partition] = None if count is None or before is None else before + count
    return rows


def require_one_task_each(reports: Iterable[TaskReport]) -> None:
    """Raise NotRoutedError if two tasks had rows of one log partition."""
    known: set[int] = set()
    for report in reports:
        own = [each.progress.partition for each in report.results] + [each.partition for each in report.hashed]
        both = known.intersection(own)
        if both:
            raise NotRoutedError(
                f"partition {min(both)} got rows from two tasks of one write, so no order among them is kept. All "
                f"rows of a log partition must be in one task: use spark_cas.route(df, ...), change nothing between "
                f"it and the write, and run the same job again.",
                partition=min(both),
            )
        known.update(own)


def rank_of(kind: str) -> int:
    """Return the rank of a kind of error. Of several errors, the user gets the kind with the lowest rank."""
    kinds: Sequence[str] = _MOST_IMPORTANT_FIRST
    return kinds.index(kind) if kind in kinds else len(kinds)


def _brief(rejection: Rejection) -> str:
    reached = ", ".join(str(partition) for partition in rejection.partitions)
    return f"the task with partition {reached} ({rejection.kind})" if reached else f"a task ({rejection.kind})"


@contextmanager
def measured(
    request: WriteRequest,
    messages: Sequence[WriterCommitMessage | None],
    *,
    job: str | None,
    planning_ms: tuple[int, int],
    batch: int | None = None,
) -> Iterator[None]:
    """Log a write after the block, which commits it, and send its metrics and lineage if they have a target.

    The driver began and finished to plan at ``planning_ms``, milliseconds since 1970. ``batch`` is the number of the
    micro-batch, if the write is one.
    """
    committing_ms, error = clock.now_ms(), ""
    try:
        yield
    except BaseException as failure:
        error = failure.kind if isinstance(failure, ConditionalLogError) else type(failure).__name__
        raise
    finally:
        _record(request, messages, job, (*planning_ms, committing_ms, clock.now_ms()), batch=batch, error=error)


def record_aborted(
    request: WriteRequest,
    messages: Sequence[WriterCommitMessage | None],
    *,
    job: str | None,
    planning_ms: tuple[int, int],
    batch: int | None = None,
) -> None:
    """Log a write that Spark aborts before its commit, and send its metrics and lineage, as `measured` does.

    A task failed, or the query or job was stopped. The message of an incomplete task is None, so its appended rows
    are not counted. If all tasks succeeded, the commit failed, and `measured` has already logged the write.
    """
    if any(each is None for each in messages):
        _record(request, messages, job, (*planning_ms, clock.now_ms()), batch=batch, error=_ABORTED)


@contextmanager
def measured_plan(request: WriteRequest) -> Iterator[None]:
    """Log a write and publish its metrics if the block, which plans it, rejects it."""
    started_ms = clock.now_ms()
    try:
        yield
    except ConditionalLogError as failure:
        times = (started_ms, clock.now_ms())
        _record(request, (), request.job, times, batch=request.batch_id, error=failure.kind)
        raise


def _record(
    request: WriteRequest,
    messages: Sequence[WriterCommitMessage | None],
    job: str | None,
    times: Sequence[int],
    *,
    batch: int | None,
    error: str,
) -> None:
    """Log a write and publish its metrics. ``times`` are the begin and end of its phases, milliseconds since 1970."""
    reports = [each for each in messages if isinstance(each, TaskReport)]
    rows, existing = _rows(reports)
    appended = sum(each.tally.bytes for each in reports)
    counts = {
        "chunks": sum(each.tally.chunks for each in reports),
        "conflicts": int(error == ErrorKind.CONFLICT),
        "retries": sum(each.tally.retries for each in reports),
    }
    if error and request.whole:
        # The rows of a rejected atomic write are not visible.
        rows = appended = counts["chunks"] = 0
    log, seconds = request.spec.url, (times[-1] - times[0]) / 1000
    log_write(log, job, rows=rows, existing=existing, seconds=seconds, batch=batch, error=error, **counts)
    # A name that is new in each run would add jobs and series without a limit.
    named = request.round_of or job
    named = None if named is None or is_fresh(named) else named
    if request.lineage:
        send_run(named, log, (times[0], times[-1]), rows=rows, error=error, is_micro_batch=batch is not None)
    if request.metrics is None:
        return
    labels = {"log": log, "topic": request.spec.topic, "job": named or "unnamed"}
    totals = {"writes": 1, "failures": int(bool(error)), "rows": rows, "bytes": appended, **counts}
    phases = zip(("plan", "append", "commit"), times, times[1:], strict=False)
    values = [Measurement(name, value, labels) for name, value in totals.items()]
    values += [
        Measurement("seconds", max(0, end - begin) / 1000, {**labels, "phase": phase}) for phase, begin, end in phases
    ]
    publish(request.metrics, values)


def _rows(reports: Sequence[TaskReport]) -> tuple[int, int]:
    """Return the rows that a run appended, and the rows of the job that the log had before."""
    rows = existing = 0
    for report in reports:
        appended = {partition: count for partition, count in report.appended if count is not None}
        for result in report.results:
            total = rows_in(result)
            appended.setdefault(result.progress.partition, total - (result.resumed_rows or 0))
            existing += total - appended[result.progress.partition]
        rows += sum(appended.values())
        existing += sum(each.rows for each in report.hashed)
    return rows, existing


def rows_in(result: PartitionResult) -> int:
    """Return the rows of a load, or of a micro-batch, in a partition."""
    batch = result.progress.batch
    return result.progress.rows if batch is None else batch.rows


def for_last_requests(spec: AnySpec) -> AnySpec:
    """Return the log with a short retry timeout, for the last requests of a failed write.

    The error of the write is raised after them.
    """
    return spec.with_patience(int(1000 * timing.current().longest_request))


def stop_others(spec: AnySpec, log_id: str, run: str, rejection: Rejection) -> None:
    """Cancel the run of a task. If this fails, the other tasks run to their end."""
    # A worker that sees another log cannot reach the other tasks through it.
    if rejection.kind != LogNotSharedError.kind:
        with suppress(ConditionalLogError), planned_log(for_last_requests(spec), log_id) as log:
            cancel_run(log, run, rejection)
