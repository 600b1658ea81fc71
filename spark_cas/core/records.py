"""The one schema in which records travel, and the size of a record."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

RECORDS = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
    ]
)
"""A record: nullable key, nullable value (null is a tombstone), headers, and a time in milliseconds.

A null timestamp is filled by the backend when it appends. Null headers and an empty list mean the same.
"""

TIMESTAMP_TYPE = "timestampType"
"""Whose a record's time is, as Kafka counts: 0 the writer's, 1 the broker's, -1 there is none."""

RECORD_OVERHEAD_BYTES = 32
"""What a record takes besides its key, value and headers: lengths and time. An estimate."""


def record_sizes(records: pa.RecordBatch) -> np.ndarray:
    """The size of each record of a batch in ``RECORDS``, in bytes: an int64 array of ``num_rows``."""
    sizes = np.full(records.num_rows, RECORD_OVERHEAD_BYTES, dtype=np.int64)
    for name in ("key", "value"):
        sizes += _lengths(records.column(name))
    headers = records.column("headers")
    if headers.null_count < len(headers):
        sizes += _header_sizes(headers)
    return sizes


def _lengths(column: pa.Array) -> np.ndarray:
    lengths: np.ndarray = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    return lengths


def _header_sizes(headers: pa.Array) -> np.ndarray:
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
    entries = headers.flatten()
    sizes = _lengths(entries.field("key")) + _lengths(entries.field("value"))
    upto = np.concatenate(([0], np.cumsum(sizes)))
    ends = np.cumsum(counts)
    per_record: np.ndarray = upto[ends] - upto[ends - counts]
    return per_record


def first_since(records: pa.RecordBatch | pa.Table, timestamp_ms: int) -> int | None:
    """The position of the first record that is not older than a time, in milliseconds since 1970."""
    column = records.column("timestamp")
    found: int = pc.index(pc.greater_equal(column, pa.scalar(timestamp_ms, column.type)), value=True).as_py()
    return None if found < 0 else found


def fill_timestamps(records: pa.Table, time_ms: int) -> pa.Table:
    """Give the records without a timestamp the chunk's time, in milliseconds since 1970."""
    column = records.column("timestamp")
    if column.null_count == 0:
        return records
    filler = pa.scalar(time_ms, column.type)
    return records.set_column(records.schema.get_field_index("timestamp"), "timestamp", pc.fill_null(column, filler))
