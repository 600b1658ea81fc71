"""The reader: the records between bounds that are pinned when the read is planned."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_cas.core.offsets import OffsetRange
from spark_cas.core.records import RECORDS
from spark_cas.log.backend import Backend
from spark_cas.options.read_range import ReadRange, kept
from spark_cas.options.selection import Selection
from spark_cas.options.splitting import Ranges, Splitting
from spark_cas.options.topic_partitions import TopicPartition
from spark_cas.spark.plain_errors import called_by_spark
from spark_cas.spark.reading.selected_logs import Seen, SelectedLogs, bounds_in
from spark_cas.spark.records import RowBuilder
from spark_cas.spark.worker import planned_log


@dataclass(frozen=True)
class RecordsPartition(InputPartition):
    """What one task reads: offsets of one log partition."""

    log_id: str
    at: TopicPartition
    offsets: OffsetRange


@called_by_spark
class RecordsReader(DataSourceReader):
    """Reads records as Arrow batches, in the columns of ``schema``, which `check_read_schema` has seen.

    Columns: any of key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,
    timestampType int, headers array<struct<key string, value binary>>.

    Guarantee: what is read lies in the ranges found when the read was planned, all of it, however often the
    relation is scanned and whatever is appended meanwhile. One task per log partition, unless more are asked for.
    """

    def __init__(self, selection: Selection, wanted: ReadRange, splitting: Splitting, schema: StructType) -> None:
        self.selection = selection
        self.wanted = wanted
        self.splitting = splitting
        self.schema = schema

    def partitions(self) -> list[InputPartition]:
        with SelectedLogs(self.selection) as logs:
            seen = logs.look(waiting=True)
            ranges = self.wanted.resolve(bounds_in(seen), logs.since)
        return tasks_of(seen, ranges, self.splitting)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Where there is nothing to read Spark sends an empty partition of its own.
        if isinstance(partition, RecordsPartition):
            yield from read_records(self.selection, self.wanted, partition, self.schema)


def tasks_of(seen: Seen, ranges: Ranges, splitting: Splitting) -> list[InputPartition]:
    """What the tasks of a read are sent."""
    return [RecordsPartition(seen[at.topic].log_id, at, offsets) for at, offsets in splitting.split(ranges)]


def read_records(
    selection: Selection, wanted: ReadRange, part: RecordsPartition, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """The records of one task, in the columns of ``schema``."""
    arrow = to_arrow_schema(schema, timezone="UTC")
    with planned_log(selection.spec_of(part.at.topic), part.log_id) as log:
        builder = RowBuilder(arrow, part.at.topic, part.at.partition)
        columns = tuple(name for name in RECORDS.names if name in arrow.names)
        for base_offset, records in _kept_records(log, part, columns, fail_on_data_loss=wanted.fail_on_data_loss):
            yield builder.build(base_offset, records)


def _kept_records(
    log: Backend, part: RecordsPartition, columns: tuple[str, ...], *, fail_on_data_loss: bool
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """What the log keeps of the range; TrimmedError unless that is all, or less is allowed."""
    start_offset = _start_offset(log, part)
    while True:
        offsets = kept(part.at, part.offsets, start_offset, fail_on_data_loss=fail_on_data_loss)
        try:
            return log.read(part.at.partition, offsets, columns)
        except ValueError:
            # Trimmed since it was asked, or not within the log for another reason.
            before, start_offset = start_offset, _start_offset(log, part)
            if start_offset == before:
                raise


def _start_offset(log: Backend, part: RecordsPartition) -> int:
    return log.bounds_of([part.at.partition], waiting=False)[0].start_offset
