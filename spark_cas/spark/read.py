"""The reader: the records between bounds that are pinned when the read is planned."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_cas.core.offsets import OffsetRange
from spark_cas.core.records import RECORDS
from spark_cas.log.open import AnySpec, open_log
from spark_cas.spark.read_range import ReadRange
from spark_cas.spark.records import RowBuilder
from spark_cas.spark.worker import planned_log


@dataclass(frozen=True)
class RecordsPartition(InputPartition):
    """What one task reads: offsets of one log partition."""

    log_id: str
    partition: int
    offsets: OffsetRange


class RecordsReader(DataSourceReader):
    """Reads records as Arrow batches, in the columns of ``schema``, which `check_read_schema` has seen.

    Columns: any of key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,
    timestampType int, headers array<struct<key string, value binary>>.

    Guarantee: what is read lies in the ranges found when the read was planned, all of it, however often the
    relation is scanned and whatever is appended meanwhile. One task per log partition.
    """

    def __init__(self, spec: AnySpec, wanted: ReadRange, schema: StructType) -> None:
        self.spec = spec
        self.wanted = wanted
        self.schema = schema

    def partitions(self) -> list[InputPartition]:
        with open_log(self.spec) as log:
            layout = log.layout()
            bounds = [log.bounds(partition) for partition in range(layout.partitions)]
            ranges = self.wanted.resolve(log.topic, bounds)
        return [RecordsPartition(layout.log_id, partition, offsets) for partition, offsets in enumerate(ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Without any log partition, which no log is, Spark sends an empty one.
        if isinstance(partition, RecordsPartition) and len(partition.offsets):
            yield from self._read(partition)

    def _read(self, part: RecordsPartition) -> Iterator[pa.RecordBatch]:
        arrow = to_arrow_schema(self.schema, timezone="UTC")
        with planned_log(self.spec, part.log_id) as log:
            offsets = self.wanted.kept(part.partition, part.offsets, log.bounds(part.partition).start_offset)
            builder = RowBuilder(arrow, log.topic, part.partition)
            columns = tuple(name for name in RECORDS.names if name in arrow.names)
            for base_offset, records in log.read(part.partition, offsets, columns):
                yield builder.build(base_offset, records)
