"""The log line, metrics and lineage of a write. The process that commits the write sends them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql.datasource import WriterCommitMessage

from spark_cas.core.check_name import is_fresh
from spark_cas.core.errors import ConditionalLogError, ErrorKind
from spark_cas.core.plan import PartitionResult
from spark_cas.log import clock
from spark_cas.log.log_lines import log_write
from spark_cas.options.lineage_and_metrics import send_run
from spark_cas.options.request import WriteRequest
from spark_cas.spark.writing.report import TaskReport


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
        reports = [each for each in messages if isinstance(each, TaskReport)]
        _record(request, reports, job, (*planning_ms, committing_ms, clock.now_ms()), batch=batch, error=error)


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
    reports: Sequence[TaskReport],
    job: str | None,
    times: Sequence[int],
    *,
    batch: int | None,
    error: str,
) -> None:
    """Log a write and publish its metrics. ``times`` are the begin and end of its phases, milliseconds since 1970."""
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
    from spark_cas.options.lineage_and_metrics import Measurement, publish

    labels = {"log": log, "topic": request.spec.topic, "job": named or "unnamed"}
    totals = {"writes": 1, "rows": rows, "bytes": appended, **counts}
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
