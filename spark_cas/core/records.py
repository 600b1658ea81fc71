"""The Arrow schema of records, and helpers for sizes and timestamps."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_cas.core.columns import lengths_of

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

RECORDS = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
    ]
)
"""A record: nullable key, nullable value (null is a tombstone), headers, and a timestamp in milliseconds.

The backend sets a null timestamp when it appends the record. Null headers are equal to an empty list.
"""

TIMESTAMP_TYPE = "timestampType"
"""Kafka's timestamp type of a record: 0 for the writer's time, 1 for the broker's, -1 for none."""

RECORD_OVERHEAD_BYTES = 32
"""Estimated bytes of a record in addition to its key, value and headers, for lengths and timestamp."""


def records_of_bytes(keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> pa.Table:
    """Return records without headers and timestamps, in the schema `RECORDS`, from Python values.

    Use it for a few records in a process that only plans. It builds the arrays from buffers, because pyarrow imports
    pandas for the first list or scalar, and that import takes longer than the conversion.
    """
    bare = (pa.nulls(len(keys), RECORDS.field(name).type) for name in ("headers", "timestamp"))
    return pa.Table.from_arrays([_column_of(keys), _column_of(values), *bare], schema=RECORDS)


def _column_of(values: Sequence[bytes | None]) -> pa.Array:
    there = np.packbits(np.array([each is not None for each in values], np.bool_), bitorder="little")
    ends = np.cumsum([0, *(len(each or b"") for each in values)], dtype=np.int32)
    parts = (there.tobytes(), ends.tobytes(), b"".join(each or b"" for each in values))
    return pa.Array.from_buffers(pa.binary(), len(values), [pa.py_buffer(each) for each in parts])


def record_sizes(records: pa.RecordBatch) -> np.ndarray:
    """Return the size of each record in bytes, as an int64 array of ``records.num_rows``.

    Args:
        records: A batch in the schema `RECORDS`.
    """
    sizes = np.full(records.num_rows, RECORD_OVERHEAD_BYTES, dtype=np.int64)
    for name in ("key", "value"):
        sizes += lengths_of(records.column(name), of_null=0)
    headers = records.column("headers")
    if headers.null_count < len(headers):
        sizes += _header_sizes(headers)
    return sizes


def _header_sizes(headers: pa.Array) -> np.ndarray:
    counts = lengths_of(headers, of_null=0)
    entries = headers.flatten()
    keys, values = entries.flatten()
    sizes = lengths_of(keys, of_null=0) + lengths_of(values, of_null=0)
    upto = np.concatenate(([0], np.cumsum(sizes)))
    ends = np.cumsum(counts)
    per_record: np.ndarray = upto[ends] - upto[ends - counts]
    return per_record


def first_since(records: pa.RecordBatch | pa.Table, timestamp_ms: int) -> int | None:
    """Return the position of the first record with a timestamp at or after ``timestamp_ms``; None if there is none.

    Args:
        records: Records in the schema `RECORDS`.
        timestamp_ms: Milliseconds since 1970.
    """
    column = records.column("timestamp")
    result: int = pc.index(pc.greater_equal(column, pa.scalar(timestamp_ms, column.type)), value=True).as_py()
    return None if result < 0 else result


def fill_timestamps(records: pa.Table, time_ms: int) -> pa.Table:
    """Replace each null timestamp with ``time_ms``, in milliseconds since 1970."""
    column = records.column("timestamp")
    if column.null_count == 0:
        return records
    filler = pa.scalar(time_ms, column.type)
    return records.set_column(records.schema.get_field_index("timestamp"), "timestamp", pc.fill_null(column, filler))
