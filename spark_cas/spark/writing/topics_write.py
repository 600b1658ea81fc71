"""The writer of a load or a micro-batch to several topics.

Each topic has a writer of its own, with its own plan, conditions and progress.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_cas.core.errors import (
    ConditionalLogError,
    InputChangedError,
    LogNotFoundError,
    NotRoutedError,
    StorageError,
)
from spark_cas.core.plan import Plan
from spark_cas.log.load.planning import job_progress
from spark_cas.options.parse import error_of_topics, of_topic, parse_write, parsed_by_topic
from spark_cas.options.request import WriteRequest
from spark_cas.spark.accelerators.quick_ack import acknowledged
from spark_cas.spark.plain_errors import called_by_spark
from spark_cas.spark.schema import marks_by_topic, with_mark
from spark_cas.spark.worker import open_here
from spark_cas.spark.writing.blind_write import BlindWriter
from spark_cas.spark.writing.end_markers import changed_after_route
from spark_cas.spark.writing.report import TaskReport, is_rejected, measured_plan, rank_of, rows_in
from spark_cas.spark.writing.stream_write import BatchWriter, plan_batch_write
from spark_cas.spark.writing.write import CheckedWrite, ConditionalLogWriter, checked_write, warn_of_missing_job


@dataclass(frozen=True)
class TopicReport(WriterCommitMessage):
    """The commit message of a task, all of whose rows are for one topic."""

    topic: str
    report: TaskReport


class _OtherTopicError(Exception):
    """A task has rows of another topic. It is no error of spark_cas, so no writer reports it as one of its topic."""


def plan_topics(options: Mapping[str, str], schema: StructType) -> "TopicsWriter":
    """Plan the write to each topic, in the order of their names, so that two loads never wait for each other."""
    marks = marks_by_topic(schema)
    if marks is None:
        raise NotRoutedError(
            "the options name no topic, and the frame was not routed to the topics in its column topic. Nothing was "
            "appended. Use spark_cas.route(df, options) with the options of this write, or set option topic."
        )
    requests = parsed_by_topic(options, marks, parse_write)
    if requests.keys() != marks.keys():
        raise NotRoutedError(
            f"option expectedOffsets names topic {min(requests.keys() - marks.keys())}, to which the frame was not "
            f"routed. Nothing was appended. Use spark_cas.route(df, options) with the options of this write."
        )
    schemas = {topic: with_mark(schema, mark) for topic, mark in marks.items()}
    is_load = all(each.batch_id is None for each in requests.values())
    return TopicsWriter(_plan_load(requests, schemas) if is_load else _plan_batch(requests, schemas))


def _plan_load(
    requests: Mapping[str, WriteRequest], schemas: Mapping[str, StructType]
) -> "dict[str, ConditionalLogWriter | BlindWriter]":
    """Check the load of each topic, and then pin the plan of each.

    If one topic is rejected, no topic has a new plan, so a corrected run of the job starts afresh.
    """
    checked: dict[str, CheckedWrite | BlindWriter] = {}
    plans: list[Plan] = []
    writers: dict[str, ConditionalLogWriter | BlindWriter] = {}
    try:
        for topic, each in requests.items():
            with (
                of_topic(topic),
                measured_plan(each),
                checked_write(each, schemas[topic]) as (log, write),
            ):
                checked[topic] = write
                if isinstance(write, CheckedWrite):
                    plans.append(write.plan(log, record=False))
        for plan in plans:
            _require_no_rows_in_others(plan, requests)
        for topic, write in checked.items():
            if isinstance(write, BlindWriter):
                writers[topic] = write
                continue
            with of_topic(topic), measured_plan(write.request), open_here(write.request.spec) as log:
                writers[topic] = write.pin(log)
    except BaseException:
        for write in checked.values():
            if isinstance(write, CheckedWrite):
                write.release()
        raise
    warn_of_missing_job(*requests.values())
    return writers


def _require_no_rows_in_others(plan: Plan, requests: Mapping[str, WriteRequest]) -> None:
    """Raise InputChangedError if the job has appended rows to a topic for which this run has none."""
    spec, job = next(iter(requests.values())).spec, plan.continues or plan.job
    for topic in sorted(set(plan.topics) - requests.keys()):
        with open_here(spec.of_topic(topic)) as log, suppress(LogNotFoundError):
            rows = sum(each.rows for each in job_progress(log, job, proven=True))
            if rows:
                raise InputChangedError(
                    f"topic {topic} has {rows} rows of job {job!r}, but the input now has none for it. Nothing "
                    f"was appended now. Run the job with the rows that it began with, or load other rows under "
                    f"another job name.",
                    job=job,
                )


def _plan_batch(requests: Mapping[str, WriteRequest], schemas: Mapping[str, StructType]) -> dict[str, BatchWriter]:
    """Plan a micro-batch in each topic. Each task compares it with the ledgers of all topics before it appends."""
    tasks = {}
    for topic, each in requests.items():
        with of_topic(topic):
            tasks[topic] = plan_batch_write(each, schemas[topic]).task
    ledger = tuple(entry for task in tasks.values() for entry in task.ledger)
    return {topic: BatchWriter(replace(task, ledger=ledger)) for topic, task in tasks.items()}


@called_by_spark
class TopicsWriter(DataSourceArrowWriter):
    """Appends the rows of each task to their topic."""

    def __init__(self, writers: Mapping[str, ConditionalLogWriter | BlindWriter | BatchWriter]) -> None:
        self._writers = dict(writers)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TopicReport:
        """Append the rows of one task, and return its report.

        Raises NotRoutedError if the rows are for several topics. Then no topic is complete, because a part of its
        rows may be among the unread rows of this task.
        """
        batches = acknowledged(iterator)
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return TopicReport("", TaskReport())
        topic = first.column("topic")[0].as_py()
        writer = self._writers.get(topic)
        if writer is None:
            raise _with_other_topics(topic)
        try:
            return TopicReport(topic, writer.write(_of_one_topic(chain([first], batches), topic)))
        except _OtherTopicError:
            raise _with_other_topics(topic) from None

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Complete the job or batch in each topic. If some are rejected, complete the others, and raise one error."""
        rows, errors = dict[str, int](), dict[str, ConditionalLogError]()
        for topic, writer in self._writers.items():
            reports = _reports_of(topic, messages)
            try:
                writer.commit([*reports])
            except ConditionalLogError as error:
                errors[topic] = error
                if isinstance(error, StorageError) and not is_rejected(reports):
                    # The brokers do not respond, so each other topic would wait for the retry deadline too.
                    break
            else:
                rows[topic] = sum(_rows_in(each) for each in reports)
        if errors:
            raise _error_of(errors, rows, [each for each in self._writers if each not in errors and each not in rows])

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        failed = [None] * messages.count(None)
        for topic, writer in self._writers.items():
            writer.abort([*_reports_of(topic, messages), *failed])


def _of_one_topic(batches: Iterator[pa.RecordBatch], topic: str) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if not pc.all(pc.equal(batch.column("topic"), topic), skip_nulls=False, min_count=0).as_py():
            raise _OtherTopicError
        yield batch


def _with_other_topics(topic: str | None) -> NotRoutedError:
    return changed_after_route(f"a task has rows of topic {topic!r} and of others, or of a topic that is new since")


def _reports_of(topic: str, messages: list[WriterCommitMessage | None]) -> list[TaskReport]:
    return [each.report for each in messages if isinstance(each, TopicReport) and each.topic == topic]


def _rows_in(report: TaskReport) -> int:
    return sum(rows_in(each) for each in report.results) + sum(each.rows for each in report.hashed)


def _error_of(
    errors: Mapping[str, ConditionalLogError], rows: Mapping[str, int], unknown: Sequence[str]
) -> ConditionalLogError:
    """Return one error for all topics whose commit failed.

    Args:
        errors: The error of each of these topics.
        rows: The rows of the job, or of the batch, in each complete topic.
        unknown: The topics in which the driver did not complete it, because the brokers do not respond.
    """
    error = error_of_topics(dict(sorted(errors.items(), key=lambda each: rank_of(each[1].kind))))
    remaining = f" Incomplete topics: {', '.join(unknown)}." if unknown else ""
    complete = ", ".join(f"{topic} ({count} rows)" for topic, count in rows.items()) or "none"
    return error.with_message(f"{error.message} Complete topics: {complete}.{remaining}")
