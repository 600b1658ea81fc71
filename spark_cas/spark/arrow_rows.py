"""Convert Arrow columns of Spark to records of the log and back, without a loop over rows."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_cas.core.errors import NotRoutedError, SchemaError
from spark_cas.core.micro_batch import OFFSET
from spark_cas.core.partitioner import Partitioner, partition_of
from spark_cas.core.records import RECORDS, TIMESTAMP_TYPE
from spark_cas.core.row_claims import CLAIMED, COLUMN

_BY_NAME = {field.name: field.type for field in RECORDS}
_MICROSECOND_TYPE = pa.timestamp("us")
_MILLISECOND_TYPE = pa.timestamp("ms")
_LATEST_MILLIS = (2**63 - 1) // 1000
"""The largest time in milliseconds that fits into 64 bits as microseconds."""


def by_partition(
    batches: Iterable[pa.RecordBatch],
    partitions: int,
    partitioner: Partitioner | None = None,
    *,
    with_offsets: bool = False,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of Spark's batches as (partition, rows in `RECORDS` or `CLAIMED`).

    The rows of each partition keep their order. A partitioner assigns them unless they have a column ``partition``.
    ``with_offsets`` keeps the column `OFFSET` if it has integers.

    Raises:
        NotRoutedError: A partition id is null or not in ``range(partitions)``.
        SchemaError: A timestamp has microseconds.
    """
    for batch in batches:
        if batch.num_rows == 0:
            continue
        records = records_of(batch)
        if COLUMN in batch.schema.names:
            records = pa.RecordBatch.from_arrays([*records.columns, batch.column(COLUMN)], schema=CLAIMED)
        if with_offsets and OFFSET in batch.schema.names and pa.types.is_integer(batch.column(OFFSET).type):
            records = records.append_column(OFFSET, batch.column(OFFSET))
        ids = batch.column("partition") if partitioner is None else partition_of(records, partitions, partitioner)
        only = _check_ids(ids, partitions)
        if only is not None:
            yield only, records
            continue
        numbers = ids.to_numpy()
        for partition in np.unique(numbers):
            # A copy, because a slice would keep its whole batch in memory until the partition's chunk is full.
            yield int(partition), records.take(pa.array(np.flatnonzero(numbers == partition)))


def records_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns of `RECORDS` of a batch from Spark. Missing columns are null. Raises SchemaError."""
    names = set(batch.schema.names)
    columns = [
        _as_record_column(batch.column(name), name) if name in names else pa.nulls(batch.num_rows, kind)
        for name, kind in _BY_NAME.items()
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORDS)


def _as_record_column(column: pa.Array, name: str) -> pa.Array:
    """Return a column from Spark in the type that ``name`` has in `RECORDS`. Text becomes UTF-8 bytes."""
    if name == "timestamp":
        return _as_milliseconds(column)
    kind = _BY_NAME[name]
    if pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    return column if column.type == kind else column.cast(kind)


def _as_milliseconds(column: pa.Array) -> pa.Array:
    """Convert Spark's timestamps to milliseconds. Raises SchemaError if one has microseconds."""
    if column.null_count == len(column):
        return pa.nulls(len(column), _BY_NAME["timestamp"])
    instants = column.cast(pa.int64()).cast(_MICROSECOND_TYPE)
    try:
        return instants.cast(_MILLISECOND_TYPE).cast(pa.int64()).cast(_BY_NAME["timestamp"])
    except pa.ArrowInvalid:
        raise SchemaError(
            "a value of column timestamp has microseconds, but a log stores milliseconds. Nothing was appended from "
            "this batch now. Use date_trunc('millisecond', timestamp)."
        ) from None


def _as_microseconds(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert milliseconds to Spark's timestamps. A time more than 292,000 years from 1970 becomes null."""
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        numbers = column.cast(pa.int64())
        holdable = pc.and_(pc.greater_equal(numbers, -_LATEST_MILLIS), pc.less_equal(numbers, _LATEST_MILLIS))
        return pc.if_else(holdable, column, pa.scalar(None, column.type)).cast(kind)


def _check_ids(ids: pa.Array, partitions: int) -> int | None:
    """Return the partition of all rows, or None if they have several. Raise NotRoutedError for an invalid id."""
    least, most = (each.as_py() for each in pc.min_max(ids).values())
    result = None
    if ids.null_count:
        result = "null"
    elif least < 0:
        result = str(least)
    elif most >= partitions:
        result = str(most)
    if result is not None:
        raise NotRoutedError(
            f"a row has partition {result}, but the log has {partitions} partitions (0 to {partitions - 1}). Nothing "
            f"of its batch was appended. Use spark_cas.route(df, path) before you write, or fix the ids."
        )
    return int(least) if least == most else None


class RowBuilder:
    """Builds the batches of a read from the records of one partition, in the requested columns."""

    def __init__(self, schema: pa.Schema, topic: str, partition: int) -> None:
        self._schema = schema
        self._constants = {
            "topic": pa.scalar(topic, pa.string()),
            "partition": pa.scalar(partition, pa.int32()),
            TIMESTAMP_TYPE: pa.scalar(0, pa.int32()),
        }
        self._filled: dict[str, pa.Array] = {}

    def build(self, offsets: np.ndarray, records: pa.RecordBatch) -> pa.RecordBatch:
        """Return the output rows of these records, given with their offsets."""
        columns = [self._column(field, offsets, records) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _column(self, field: pa.Field, offsets: np.ndarray, records: pa.RecordBatch) -> pa.Array:
        if field.name == "offset":
            return pa.array(offsets)
        if field.name in self._constants and field.name not in records.schema.names:
            return self._constant(field.name, records.num_rows)
        column = records.column(field.name)
        if column.type == field.type:
            return column
        return _as_microseconds(column, field.type) if field.name == "timestamp" else column.cast(field.type)

    def _constant(self, name: str, count: int) -> pa.Array:
        """Return a constant column: a slice of the longest one so far."""
        filled = self._filled.get(name)
        if filled is None or len(filled) < count:
            filled = self._filled[name] = pa.repeat(self._constants[name], count)
        return filled.slice(0, count)
