"""What a task tells the driver, and what the driver makes of all tasks' reports."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from spark_cas.core.errors import (
    ERRORS_BY_KIND,
    ConditionalLogError,
    ErrorKind,
    FencedError,
    NotRoutedError,
    NotTakenError,
    OptionError,
    StorageError,
    UnknownOutcomeError,
)
from spark_cas.core.plan import Completion, PartitionResult
from spark_cas.core.plan_json import to_json
from spark_cas.options import report_file
from spark_cas.spark.writing.verify import Hashed


@dataclass(frozen=True, slots=True)
class Refused:
    """A definite refusal of one task: Spark would try a task four times that raised it."""

    kind: str
    message: str
    partitions: tuple[int, ...]
    """The log partitions that the task had met by then."""


@dataclass(frozen=True)
class TaskReport(WriterCommitMessage):
    """The commit message of a task."""

    results: tuple[PartitionResult, ...] = ()
    hashed: tuple[Hashed, ...] = ()
    """In place of results when the job was complete before."""
    refused: Refused | None = None


# A cause comes before its consequences: rows that are not routed look like changed input elsewhere.
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
    """OptionError unless a report can be put into a file, as far as can be seen before the rows are appended."""
    if file is not None and not report_file.may_be_put(file):
        raise OptionError(
            "option report names no file that can be written where Spark's driver runs. Nothing was appended. Name a "
            "file in a folder that is there and may be written."
        )


def put_report(file: str, completion: Completion) -> None:
    """Put what a load was completed with into a file, as JSON. Raises StorageError: the rows are appended by then."""
    try:
        report_file.put(file, to_json(completion) + "\n")
    except OSError:
        raise StorageError(
            "the rows are appended, and the file that option report names could not be written where Spark's driver "
            "runs. Do not append them again: name a file in a folder that is there the next time."
        ) from None


def attempted(
    pairs: Iterable[tuple[int, pa.RecordBatch]], append: Callable[[Iterator[tuple[int, pa.RecordBatch]]], TaskReport]
) -> TaskReport:
    """What ``append`` makes of a task's pairs of (partition, records), or the definite refusal that it raised.

    A definite refusal is part of the report, because Spark would retry a task that raised it. Raised is only
    what another attempt may overcome: FencedError, UnknownOutcomeError, and a store that failed.
    """
    met: set[int] = set()

    def watched() -> Iterator[tuple[int, pa.RecordBatch]]:
        for partition, records in pairs:
            met.add(partition)
            yield partition, records

    try:
        return append(watched())
    except ConditionalLogError as refusal:
        again = isinstance(refusal, FencedError | UnknownOutcomeError | StorageError)
        if again and not isinstance(refusal, NotTakenError):
            raise
        return TaskReport(refused=Refused(refusal.kind, refusal.message, tuple(sorted(met))))


def accepted(messages: Iterable[WriterCommitMessage | None]) -> list[TaskReport]:
    """The reports of a write whose tasks have all ended; raises what was refused, once."""
    reports = [message for message in messages if isinstance(message, TaskReport)]
    refusal = worst_refusal(reports)
    if refusal is not None:
        raise refusal
    require_one_task_each(reports)
    return reports


def worst_refusal(reports: Iterable[TaskReport]) -> ConditionalLogError | None:
    """One error for all refusals: the most important one's, naming the partitions of the others."""
    refusals = [report.refused for report in reports if report.refused is not None]
    if not refusals:
        return None
    first, *others = sorted(refusals, key=_rank)
    message = first.message
    if others:
        message += " Refused as well: " + "; ".join(_brief(other) for other in others) + "."
    return ERRORS_BY_KIND[ErrorKind(first.kind)](message)


def met_by_refused(messages: Iterable[WriterCommitMessage | None]) -> set[int]:
    """The log partitions that the tasks which were refused had met by then."""
    refused = [each.refused for each in messages if isinstance(each, TaskReport) and each.refused is not None]
    return {partition for each in refused for partition in each.partitions}


def require_one_task_each(reports: Iterable[TaskReport]) -> None:
    """Raise NotRoutedError when two tasks had rows of one log partition."""
    seen: set[int] = set()
    for report in reports:
        mine = [each.progress.partition for each in report.results] + [each.partition for each in report.hashed]
        both = seen.intersection(mine)
        if both:
            raise NotRoutedError(
                f"partition {min(both)} got rows from two tasks of one write, so no order among them is kept. All "
                f"rows of a log partition must be in one task: use spark_cas.route(df, ...), change nothing between "
                f"it and the write, and run the same job again."
            )
        seen.update(mine)


def _rank(refused: Refused) -> tuple[int, tuple[int, ...]]:
    kinds: Sequence[str] = _MOST_IMPORTANT_FIRST
    return (kinds.index(refused.kind) if refused.kind in kinds else len(kinds)), refused.partitions


def _brief(refused: Refused) -> str:
    met = ", ".join(str(partition) for partition in refused.partitions)
    return f"the task with partition {met} ({refused.kind})" if met else f"a task ({refused.kind})"
