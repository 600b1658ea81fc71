"""Records: their Arrow schema, their columns as numbers and bytes for hashing, and their names in errors.

The functions of columns respect slices, and never expose the memory under a null slot.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

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

NULL_LENGTH = -1
"""The length of a null, which differs from the empty value's 0."""

NULL_TIMESTAMP = -(2**63)
"""The time of a null timestamp, in milliseconds: 292 million years before 1970, which no record has."""

_BYTES_TYPES = frozenset({pa.binary(), pa.string(), pa.large_binary(), pa.large_string()})
_LARGE_TYPES = frozenset({pa.large_binary(), pa.large_string()})
_NO_KEYS, _NO_VALUES = pa.nulls(0, pa.string()), pa.nulls(0, pa.binary())
"""Constants for records without headers, the common case: Arrow would double the time of a small batch.

They are not list arrays, because pyarrow imports pandas for the first list, and no import of this package may do so.
"""

_LONGEST_KEY = 60
"""The maximum number of characters of a key in an error."""


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
    """Return the size of each record in bytes, as an int64 array of ``records.num_rows``."""
    sizes = np.full(records.num_rows, RECORD_OVERHEAD_BYTES, dtype=np.int64)
    for name in ("key", "value"):
        sizes += lengths_of(records.column(name), of_null=0)
    column = records.column("headers")
    if column.null_count < len(column):
        headers = headers_of(column)
        lengths = lengths_of(headers.keys, of_null=0) + lengths_of(headers.values, of_null=0)
        upto, ends = np.concatenate(([0], np.cumsum(lengths))), np.cumsum(headers.counts)
        sizes += upto[ends] - upto[ends - headers.counts]
    return sizes


def first_since(records: pa.RecordBatch | pa.Table, timestamp_ms: int) -> int | None:
    """Return the position of the first record with a timestamp of ``timestamp_ms`` or later; None if none has one."""
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


@dataclass(frozen=True, slots=True)
class Headers:
    """The headers of all rows, concatenated."""

    counts: NDArray[np.int64]
    """The number of headers of each row, 0 for null."""
    nulls: NDArray[np.bool_]
    """Whether each header is null itself. If so, its key and value are null."""
    keys: pa.Array
    values: pa.Array


def headers_of(column: pa.Array) -> Headers:
    """Return the headers in the column ``headers`` of `RECORDS`."""
    if column.null_count == len(column):
        return Headers(np.zeros(len(column), "<i8"), np.zeros(0, np.bool_), _NO_KEYS, _NO_VALUES)
    entries = column.flatten()
    keys, values = entries.flatten()
    return Headers(lengths_of(column, of_null=0), nulls_of(entries), keys, values)


def nulls_of(column: pa.Array) -> NDArray[np.bool_]:
    """Return whether each value is null."""
    result = column.is_null()
    bits = result.buffers()[1]
    if bits is None:
        return np.zeros(len(column), np.bool_)
    # `to_numpy` would import pandas.
    spread = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
    return spread[result.offset : result.offset + len(result)].view(np.bool_)


def lengths_of(column: pa.Array, *, of_null: int) -> NDArray[np.int64]:
    """Return the length of each value: bytes of a binary or text, entries of a list; ``of_null`` for a null."""
    lengths = np.diff(_bounds_of(column)).astype("<i8")
    if column.null_count:
        lengths[nulls_of(column)] = of_null
    return lengths


def bytes_of(column: pa.Array) -> memoryview:
    """Return the bytes of all non-null values, concatenated, with text as UTF-8.

    The result is a view of the column's buffer, or a copy if null slots cover bytes.

    Raises:
        TypeError: The column is not binary, large_binary, string or large_string.
    """
    if column.type not in _BYTES_TYPES:
        raise TypeError(f"expected binary, large_binary, string or large_string, got {column.type}")
    covered = _covered_by(column)
    if column.null_count and len(covered) > int(lengths_of(column, of_null=0).sum()):
        return _covered_by(column.drop_null())
    return covered


def times_of(column: pa.Array) -> NDArray[np.int64]:
    """Return each timestamp as an integer in the unit of the column, `NULL_TIMESTAMP` for a null."""
    if column.null_count == len(column):
        return np.full(len(column), NULL_TIMESTAMP, "<i8")
    times: NDArray[np.int64] = column.cast(pa.int64()).fill_null(NULL_TIMESTAMP).to_numpy()
    return times.astype("<i8", copy=False)


def numbers_as_bytes(*columns: NDArray[np.int64]) -> pa.Array:
    """Return the numbers of each row as one value, little-endian."""
    table = np.column_stack(columns).astype("<i8")
    kind = pa.binary(table.shape[1] * 8)
    return pa.FixedSizeBinaryArray.from_buffers(kind, len(table), [None, pa.py_buffer(table.tobytes())])


def joined(*columns: pa.Array) -> pa.Array:
    """Return the bytes of all columns for each row, concatenated, as large_binary. A null adds no bytes."""
    large = [column.cast(pa.large_binary()) for column in columns]
    return pc.binary_join_element_wise(*large, no_bytes(), null_handling="replace", null_replacement=b"")


def no_bytes() -> pa.Scalar:
    """Return an empty value. It is no constant, because pyarrow imports pandas with the first scalar."""
    return pa.scalar(b"", pa.large_binary())


def _covered_by(column: pa.Array) -> memoryview:
    """Return all bytes that the slots of the column cover, including null slots."""
    data = column.buffers()[2]
    if data is None:
        return memoryview(b"")
    bounds = _bounds_of(column)
    return memoryview(data)[int(bounds[0]) : int(bounds[-1])]


def _bounds_of(column: pa.Array) -> NDArray[np.int64] | NDArray[np.int32]:
    """Return the start of each value, and the end of the last: ``len(column) + 1`` positions."""
    bounds = column.buffers()[1]
    if len(column) == 0 or bounds is None:
        return np.zeros(1, dtype=np.int64)
    width = np.dtype(np.int64 if column.type in _LARGE_TYPES else np.int32)
    return np.frombuffer(memoryview(bounds), width, len(column) + 1, column.offset * width.itemsize)


def readable(value: bytes | None) -> str:
    """Return bytes as one line of text, with Python escapes for invalid UTF-8 and unprintable characters.

    None becomes ``<null>``.
    """
    if value is None:
        return "<null>"
    text = value.decode("utf-8", "backslashreplace")
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def readable_key(key: bytes | None) -> str:
    """Return a key as `readable` does, cut after 60 characters."""
    # A key may have megabytes. A character has at most four bytes.
    text = readable(key if key is None else key[: 4 * _LONGEST_KEY + 4])
    return text if len(text) <= _LONGEST_KEY else f"{text[:_LONGEST_KEY]}…"


def row_name(row: int, partition: int, key: bytes | None) -> str:
    """Return the name of a row in an error: its number, its partition, and its key if it has one."""
    return f"row {row} of partition {partition}{'' if key is None else f' (key {readable_key(key)})'}"
