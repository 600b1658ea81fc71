"""Access to Arrow columns for hashing: numbers, bytes and null masks.

The functions respect slices, and never expose the memory under a null slot.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

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


@dataclass(frozen=True, slots=True)
class Headers:
    """The headers of all rows, concatenated."""

    counts: NDArray[np.int64]
    """The number of headers of each row, 0 for null."""
    nulls: NDArray[np.bool_]
    """Whether each header is null itself. If so, its key and value are null."""
    keys: pa.Array
    """The key of each header: string."""
    values: pa.Array
    """The value of each header: binary."""


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
