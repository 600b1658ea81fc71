"""The batch readers: records between bounds that are pinned when the read is planned, and the views of a log."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark_cas.core.errors import TrimmedError, TruncatedError
from spark_cas.core.expansion import Layouts
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.records import RECORDS, TIMESTAMP_TYPE
from spark_cas.log.backend import Backend
from spark_cas.options.read_range import Task, TopicPartition, kept
from spark_cas.options.request import ReadRequest
from spark_cas.options.table import VIEW_NEWEST
from spark_cas.spark.accelerators.quick_ack import Acknowledged
from spark_cas.spark.arrow_rows import RowBuilder
from spark_cas.spark.plain_errors import called_by_spark
from spark_cas.spark.reading.selected_logs import SelectedLogs, bounds_in
from spark_cas.spark.versions import arrow_schema
from spark_cas.spark.worker import planned_log

_MOST_BYTES = 32 * 1024 * 1024
_EMPTY_BYTES = 2048
"""Estimated bytes of a batch without its rows, which matter if each batch has one record."""
_BATCH_ROWS = 20_000
_WORTH_SHARE = 0.8
"""Comparing a record costs about as much as moving a fifth of a record."""


@dataclass(frozen=True)
class RecordsPartition(InputPartition):
    """The offsets of one log that one task reads."""

    log_id: str
    ranges: Task


@called_by_spark
class RecordsReader(Acknowledged, DataSourceReader):
    """Reads records as Arrow batches, in the columns of ``schema``, which passed `check_read_schema`.

    Columns: any of key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,
    timestampType int, headers array<struct<key string, value binary>>.

    Guarantee: each scan of the relation reads all records in the ranges that were pinned at planning, and no later
    ones. On Spark 4.0 each action plans its own ranges. `Splitting` determines the number of tasks.
    """

    def __init__(self, request: ReadRequest, schema: StructType) -> None:
        self.request = request
        self.schema = schema

    def partitions(self) -> list[InputPartition]:
        with SelectedLogs(self.request.selection) as logs:
            known = logs.read(waiting=True)
            ranges = self.request.range.resolve(bounds_in(known), logs.since)
        tasks = self.request.splitting.split(ranges)
        return [RecordsPartition(known[task[0][0].topic].log_id, task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # If there is nothing to read, Spark passes an empty partition of its own.
        if isinstance(partition, RecordsPartition):
            yield from read_records(self.request, partition, self.schema)


def read_records(request: ReadRequest, task: RecordsPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Read the records of one task, in the columns of ``schema``; for ``view=newest`` those of `newest_of_keys`."""
    arrow = arrow_schema(schema)
    columns = tuple(name for name in (*RECORDS.names, TIMESTAMP_TYPE) if name in arrow.names)
    with planned_log(request.selection.spec.of_topic(task.ranges[0][0].topic), task.log_id) as log:
        for at, offsets in task.ranges:
            builder = RowBuilder(arrow, at.topic, at.partition)
            result = _kept_records(log, at, offsets, columns, fail_on_data_loss=request.range.fail_on_data_loss)
            rows = (builder.build(each, records) for each, records in result)
            yield from newest_of_keys(rows) if request.view == VIEW_NEWEST and "key" in columns else rows


def _kept_records(
    log: Backend,
    at: TopicPartition,
    offsets: OffsetRange,
    columns: tuple[str, ...],
    *,
    fail_on_data_loss: bool,
) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
    """Read the remaining records of a range, each with its offset, also if more are trimmed during the read.

    Raises TrimmedError if records were trimmed and ``fail_on_data_loss``; TruncatedError if the partition now ends
    before the end of the planned range.
    """
    while True:
        try:
            for result, records in log.read_with_gaps(at.partition, offsets, columns):
                yield result, records
                offsets = OffsetRange(int(result[-1]) + 1, offsets.end_offset)
        except (TrimmedError, ValueError) as error:
            bounds = log.bounds_of([at.partition], waiting=False)[0]
            if bounds.start_offset <= offsets.base_offset:
                if isinstance(error, ValueError) and offsets.end_offset > bounds.end_offset:
                    # Two reads found it too short.
                    raise TruncatedError(
                        f"{at} ends at {bounds.end_offset}, but the read was planned up to offset "
                        f"{offsets.end_offset}: the log lost records. Find the cause, then read or bootstrap again. "
                        f"A stream needs a new checkpoint."
                    ) from None
                raise
            offsets = kept(at, offsets, bounds.start_offset, fail_on_data_loss=fail_on_data_loss)
        else:
            return


def newest_of_keys(batches: Iterable[pa.RecordBatch], most_bytes: int = _MOST_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield the newest record of each key, and possibly older ones, in offset order.

    A state needs only the newest record of each key, so dropping other records early saves transfer. The memory does
    not grow with the number of keys, because the function compares a limited number of bytes at a time.

    If a comparison drops few records, the function yields the remaining batches unchanged. This happens if keys have
    few records, or if records of one key are far apart. The batches are of one partition. A null key counts as one
    key. The peak memory is up to three times ``most_bytes``.
    """
    remaining = iter(batches)
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in remaining:
        held.append(batch)
        held_bytes += batch.nbytes + _EMPTY_BYTES
        if held_bytes < most_bytes:
            continue
        compared = _rows_in(held)
        held = _newest(held)
        held_bytes = sum(each.nbytes for each in held)
        if held_bytes > most_bytes // 2:
            yield from held
            few = _rows_in(held) < _WORTH_SHARE * compared
            held, held_bytes = [], 0
            if not few:
                break
    if held:
        yield from _newest(held)
    yield from remaining


def _rows_in(batches: list[pa.RecordBatch]) -> int:
    return sum(each.num_rows for each in batches)


def _newest(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    table = pa.Table.from_batches(batches)
    numbers = table.column("key").combine_chunks().dictionary_encode("encode").indices.to_numpy()
    newest = np.zeros(numbers.max(initial=-1) + 1, np.int64)
    newest[numbers] = np.arange(len(numbers))  # numpy keeps the last value of a repeated index
    left: list[pa.RecordBatch] = table.take(np.sort(newest)).combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)
    return left


Cell = str | int | bool | tuple[tuple[int, int], ...] | None
"""A map is a tuple of its pairs."""
Row = dict[str, Cell]
"""The values of a row of a view by column, with values of other columns."""


@dataclass(frozen=True)
class ViewPartition(InputPartition):
    """The requested columns of a view at planning. Their length does not depend on the number of records."""

    columns: tuple[tuple[Cell, ...], ...]


@called_by_spark
class ViewReader(Acknowledged, DataSourceReader):
    """Reads a view. Its rows show the log at the time when the read was planned.

    Columns of ``offsets``:

    - topic string, partition int, start_offset bigint
    - end_offset bigint: the expected offset of the next conditional write
    - layout_epoch int, log_id string: a recreated log has another id
    - thresholds map<int, bigint>: by layout epoch, the end offset of the partition when partitions were added
    - partitioner string: the one recorded with the log; null if none is

    docs/result.md has the columns of ``progress``. Those from resumed_rows to start_offset are results of the task
    that completed the partition. They are null if they are not known, as for an incomplete job.
    """

    def __init__(self, request: ReadRequest, schema: StructType) -> None:
        self.request = request
        self.schema = schema
        """The requested columns."""

    def partitions(self) -> list[InputPartition]:
        names = self.schema.fieldNames()
        with SelectedLogs(self.request.selection) as logs:
            view = _VIEWS[self.request.view]
            rows = [row for topic in logs.names() for row in view(logs.log(topic), frozenset(names))]
        return [ViewPartition(tuple(tuple(row.get(name) for row in rows) for name in names))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Without a row, Spark passes an empty partition of its own.
        arrow = arrow_schema(self.schema)
        columns = partition.columns if isinstance(partition, ViewPartition) else ((),) * len(arrow)
        arrays = [
            pa.array(column, _wire(field.type)).cast(field.type) for field, column in zip(arrow, columns, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=arrow)


def _wire(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column in a row: times are milliseconds since 1970."""
    return pa.timestamp("ms", tz="UTC") if pa.types.is_timestamp(kind) else kind


def _offsets(log: Backend, requested: AbstractSet[str]) -> Iterator[Row]:
    layout = log.layout()
    if requested.isdisjoint({"start_offset", "end_offset", "thresholds"}):
        # The layout alone does not need the end of open transactions. Without the partitioner it needs no registry.
        bounds: Sequence[Bounds | None] = [None] * layout.partitions
        layouts = log.layouts() if "partitioner" in requested else Layouts(layout)
    else:
        while True:
            bounds = log.bounds_of(range(layout.partitions), waiting=True)
            # Read after the end offsets, so that it has each expansion below them.
            layouts = log.layouts()
            if layouts.layout.epoch <= layout.epoch:
                break
            # The read of the end offsets lacks partitions that were added.
            layout = layouts.layout
    for partition, each in enumerate(bounds):
        passed = [expansion for expansion in layouts.expansions if partition < expansion.before]
        yield {
            "topic": log.topic,
            "partition": partition,
            "start_offset": each.start_offset if each else None,
            "end_offset": each.end_offset if each else None,
            "layout_epoch": layout.epoch,
            "log_id": layout.log_id,
            "thresholds": tuple((expansion.epoch, expansion.thresholds[partition]) for expansion in passed),
            "partitioner": layouts.partitioner,
        }


def _progress(log: Backend, requested: AbstractSet[str]) -> Iterator[Row]:  # noqa: ARG001
    # Each Python process that reads records imports this module.
    from spark_cas.log.load.planning import job_results

    for job in log.jobs():
        plan = log.plan(job)
        for result in job_results(log, job):
            progress, appends = result.progress, result.appends
            yield {
                **asdict(progress),
                "topic": log.topic,
                "committed_at": progress.committed_at_ms,
                "round_of": plan.round_of if plan else "",
                **asdict(appends),
                "timestamp": appends.timestamp_ms,
                "has_timestamp": appends.has_timestamp,
                "resumed_rows": result.resumed_rows,
                "resolved": result.resolved,
                "guarantee": result.guarantee,
            }


_VIEWS: dict[str, Callable[[Backend, AbstractSet[str]], Iterator[Row]]] = {"offsets": _offsets, "progress": _progress}
