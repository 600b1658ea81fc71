"""Arrow columns as what hashing needs: numbers, bytes and null masks.

Slices are taken into account, and what lies in memory under a null slot is never seen by a caller.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

NULL_LENGTH = -1
"""Stands for the length of a null, which differs from the empty value's 0."""

NULL_TIME_MS = -(2**63)
"""Stands for a null timestamp, in milliseconds: 292 million years before 1970, which no record carries."""

_BYTES_TYPES = frozenset({pa.binary(), pa.string(), pa.large_binary(), pa.large_string()})
_LARGE_TYPES = frozenset({pa.large_binary(), pa.large_string()})
_NO_KEYS, _NO_VALUES = pa.nulls(0, pa.string()), pa.nulls(0, pa.binary())
"""For records without headers, which most are: asking Arrow would double the time of a small batch.

Not as arrays of lists: pyarrow imports pandas for the first list, which no import of this package should.
"""


@dataclass(frozen=True, slots=True)
class Headers:
    """The headers of all rows, one after the other."""

    counts: NDArray[np.int64]
    """For each row the number of its headers, 0 for null."""
    nulls: NDArray[np.bool_]
    """For each header whether it is null itself; its key and value are null then."""
    keys: pa.Array
    """For each header its key: string."""
    values: pa.Array
    """For each header its value: binary."""


def headers_of(column: pa.Array) -> Headers:
    """The headers in the column ``headers`` of ``RECORDS``."""
    if column.null_count == len(column):
        return Headers(np.zeros(len(column), "<i8"), np.zeros(0, np.bool_), _NO_KEYS, _NO_VALUES)
    entries = column.flatten()
    keys, values = entries.flatten()
    return Headers(lengths_of(column, of_null=0), nulls_of(entries), keys, values)


def nulls_of(column: pa.Array) -> NDArray[np.bool_]:
    """Whether each value is null."""
    found = column.is_null()
    bits = found.buffers()[1]
    if bits is None:
        return np.zeros(len(column), np.bool_)
    # Not with `to_numpy`, for which pyarrow imports pandas.
    spread = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
    return spread[found.offset : found.offset + len(found)].view(np.bool_)


def lengths_of(column: pa.Array, *, of_null: int) -> NDArray[np.int64]:
    """The length of each value: bytes of a binary or text, entries of a list; ``of_null`` for a null."""
    lengths = np.diff(_bounds_of(column)).astype("<i8")
    if column.null_count:
        lengths[nulls_of(column)] = of_null
    return lengths


def bytes_of(column: pa.Array) -> memoryview:
    """The bytes of all values that are not null, one after the other; text counts as UTF-8.

    A view of the column's own buffer, except where a null slot covers bytes: those are cut out in a copy.
    Raises ``TypeError`` for a column that is not binary, large_binary, string or large_string.
    """
    if column.type not in _BYTES_TYPES:
        raise TypeError(f"expected binary, large_binary, string or large_string, got {column.type}")
    covered = _covered_by(column)
    if column.null_count and len(covered) > int(lengths_of(column, of_null=0).sum()):
        return _covered_by(column.drop_null())
    return covered


def times_of(column: pa.Array) -> NDArray[np.int64]:
    """Each timestamp as its number, ``NULL_TIME_MS`` for a null."""
    if column.null_count == len(column):
        return np.full(len(column), NULL_TIME_MS, "<i8")
    times: NDArray[np.int64] = column.cast(pa.int64()).fill_null(NULL_TIME_MS).to_numpy()
    return times.astype("<i8", copy=False)


def _covered_by(column: pa.Array) -> memoryview:
    """All bytes that the slots of the column cover, null slots too."""
    data = column.buffers()[2]
    if data is None:
        return memoryview(b"")
    bounds = _bounds_of(column)
    return memoryview(data)[int(bounds[0]) : int(bounds[-1])]


def _bounds_of(column: pa.Array) -> NDArray[np.int64] | NDArray[np.int32]:
    """Where each value begins, and where the last ends: ``len(column) + 1`` positions."""
    bounds = column.buffers()[1]
    if len(column) == 0 or bounds is None:
        return np.zeros(1, dtype=np.int64)
    width = np.dtype(np.int64 if column.type in _LARGE_TYPES else np.int32)
    return np.frombuffer(memoryview(bounds), width, len(column) + 1, column.offset * width.itemsize)
