"""The views of a log, with one row per partition: its offsets, and the progress of its jobs."""

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark_cas.core.plan import PartitionResult
from spark_cas.log.backend import Backend
from spark_cas.log.load.planning import job_results
from spark_cas.options.request import ReadRequest
from spark_cas.spark.accelerators.quick_ack import Acknowledged
from spark_cas.spark.plain_errors import called_by_spark
from spark_cas.spark.reading.selected_logs import SelectedLogs
from spark_cas.spark.schema import read_schema
from spark_cas.spark.versions import arrow_schema

Cell = str | int | bool | tuple[tuple[int, int], ...] | None
"""A map is a tuple of its pairs."""
Row = tuple[Cell, ...]


@dataclass(frozen=True)
class ViewPartition(InputPartition):
    """The rows of a view at planning. Their number does not depend on the number of records."""

    rows: tuple[Row, ...]


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
        with SelectedLogs(self.request.selection) as logs:
            requested = frozenset(self.schema.fieldNames())
            rows = [row for topic in logs.names() for row in _VIEWS[self.request.view](logs.log(topic), requested)]
        return [ViewPartition(tuple(rows))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows = partition.rows if isinstance(partition, ViewPartition) else ()
        arrow = arrow_schema(self.schema)
        names = read_schema(self.request.view, include_headers=False).fieldNames()
        columns = dict(zip(names, zip(*rows, strict=True), strict=False))
        arrays = [pa.array(columns.get(field.name, ()), _wire(field.type)).cast(field.type) for field in arrow]
        yield pa.RecordBatch.from_arrays(arrays, schema=arrow)


def _wire(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column in a row: times are milliseconds since 1970."""
    return pa.timestamp("ms", tz="UTC") if pa.types.is_timestamp(kind) else kind


def _offsets(log: Backend, requested: AbstractSet[str]) -> Iterator[Row]:
    layout = log.layout()
    if requested.isdisjoint({"start_offset", "end_offset", "thresholds"}):
        # The layout alone does not need the end of open transactions. Without the partitioner it needs no registry.
        placed_by = log.layouts().partitioner if "partitioner" in requested else None
        for partition in range(layout.partitions):
            yield log.topic, partition, None, None, layout.epoch, layout.log_id, None, placed_by
        return
    while True:
        result = log.bounds_of(range(layout.partitions), waiting=True)
        # Read after the end offsets, so that it has each expansion below them.
        layouts = log.layouts()
        if layouts.layout.epoch <= layout.epoch:
            break
        # The read of the end offsets lacks partitions that were added.
        layout = layouts.layout
    for partition, bounds in enumerate(result):
        row = log.topic, partition, bounds.start_offset, bounds.end_offset, layout.epoch, layout.log_id
        passed = [each for each in layouts.expansions if partition < each.before]
        yield *row, tuple((each.epoch, each.thresholds[partition]) for each in passed), layouts.partitioner


def _progress(log: Backend, requested: AbstractSet[str]) -> Iterator[Row]:  # noqa: ARG001
    for job in log.jobs():
        plan = log.plan(job)
        for result in job_results(log, job):
            yield _progress_row(log.topic, result, plan.round_of if plan else "")


def _progress_row(topic: str, result: PartitionResult, round_of: str) -> Row:
    progress, message = result.progress, result.appends
    return (
        progress.job,
        topic,
        progress.partition,
        progress.rows,
        progress.base_offset,
        progress.end_offset,
        progress.chunks,
        progress.complete,
        progress.digest,
        progress.committed_at_ms,
        round_of,
        result.resumed_rows,
        message.attempts,
        result.resolved,
        message.aborted_rows,
        message.timestamp_ms,
        message.has_offset,
        message.has_timestamp,
        message.start_offset,
        result.guarantee,
    )


_VIEWS: dict[str, Callable[[Backend, AbstractSet[str]], Iterator[Row]]] = {"offsets": _offsets, "progress": _progress}
