"""Kafka's partitioners over Arrow arrays: each row gets the partition that Kafka's own clients choose.

`murmur2` processes all keys in parallel, four bytes of each key at a time.
"""

import struct
import zlib
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias, assert_never, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_cas.core.records import (
    NULL_LENGTH,
    RECORDS,
    bytes_of,
    headers_of,
    joined,
    lengths_of,
    no_bytes,
    nulls_of,
    numbers_as_bytes,
    times_of,
)

Partitioner: TypeAlias = Literal["murmur2", "crc32"]
"""``murmur2`` is the Java client's default, ``crc32`` is librdkafka's ``consistent``."""

DEFAULT_PARTITIONER: Partitioner = "murmur2"
"""The partitioner of a log without a recorded one."""

PARTITIONERS: tuple[Partitioner, ...] = get_args(Partitioner)

_Words: TypeAlias = NDArray[np.uint32]

_MAX_PARTITIONS = 2**31 - 1

# With more remaining keys than this, a step over one word of each key is cheaper than a loop over keys (measured).
_FEW_KEYS = 64

_TAIL_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], dtype=np.uint32)

_MURMUR2_SEED = 0x9747B28C
_MURMUR2_M = 0x5BD1E995
_MURMUR2_TAIL_FACTORS = np.array([1, _MURMUR2_M, _MURMUR2_M, _MURMUR2_M], dtype=np.uint32)
_UINT32 = 0xFFFFFFFF


def partition_of(
    records: pa.RecordBatch, partitions: int, partitioner: Partitioner = DEFAULT_PARTITIONER
) -> pa.Int32Array:
    """Return the partition of each row: an int32 array of ``records.num_rows`` numbers in ``range(partitions)``.

    ``murmur2`` is ``(murmur2(key) & 0x7fffffff) % partitions``, ``crc32`` is ``crc32(key) % partitions``. An empty
    key is a key, as in the Java client and in librdkafka's ``murmur2``, ``murmur2_random`` and ``consistent``.
    librdkafka's default, ``consistent_random``, assigns rows with empty keys at random.

    Kafka does not define the partition of a null key. The Java client and librdkafka's ``*_random`` choose any
    partition, ``murmur2`` and ``consistent`` that of the empty key. This function hashes the content of the row
    instead, so that a retry assigns the same partition. The content is the following bytes, with numbers as
    little-endian int64: length of the value (-1 for null), value, timestamp in milliseconds (-2**63 for null). Then,
    for each header: length of its key (-1 for null), its key, length of its value (-1 for null), its value.

    Args:
        records: Rows in the schema `RECORDS`. The key may also be large_binary, string or large_string. A missing
            column other than the key counts as null.

    Raises:
        ValueError: ``partitions`` is below 1 or above 2**31 - 1.
        KeyError: There is no column ``key``.
        TypeError: A column has another type.
    """
    if not 1 <= partitions <= _MAX_PARTITIONS:
        raise ValueError(f"a log has from 1 to {_MAX_PARTITIONS} partitions, got {partitions}")
    keys = records.column("key")
    hashes = _hashes_of(keys, partitioner)
    if keys.null_count:
        hashes[nulls_of(keys)] = _hashes_of(_contents_of(records.filter(keys.is_null())), partitioner)
    return pa.array((hashes % np.uint32(partitions)).astype(np.int32))


def _hashes_of(keys: pa.Array, partitioner: Partitioner) -> _Words:
    match partitioner:
        case "murmur2":
            return murmur2(keys).view(np.uint32) & np.uint32(0x7FFFFFFF)
        case "crc32":
            return crc32(keys)
    assert_never(partitioner)


@dataclass(frozen=True, slots=True)
class Placement:
    """The partitioner that assigned the rows of a write to partitions."""

    partitioner: Partitioner
    named: bool
    """Whether an option of the write names it. If so, the first plan of a log without a recorded partitioner records
    it."""


def known_partitioner(name: object) -> Partitioner:
    """Return the partitioner with a recorded name; raise ValueError if this version does not know the name."""
    for each in PARTITIONERS:
        if name == each:
            return each
    raise ValueError(f"expected one of {', '.join(PARTITIONERS)}")


def partition_of_key(key: bytes, partitions: int, partitioner: Partitioner = DEFAULT_PARTITIONER) -> int:
    """Return the partition of one key, as `partition_of` does, without the cost of an array."""
    return (zlib.crc32(key) if partitioner == "crc32" else _positive_murmur2_of(key)) % partitions


def _positive_murmur2_of(key: bytes) -> int:
    words = len(key) // 4
    state = (_MURMUR2_SEED ^ len(key)) & _UINT32
    for word in struct.unpack_from(f"<{words}I", key):
        mixed = word * _MURMUR2_M & _UINT32
        state = (state * _MURMUR2_M & _UINT32) ^ ((mixed ^ mixed >> 24) * _MURMUR2_M & _UINT32)
    remaining = key[4 * words :]
    if remaining:
        state = (state ^ int.from_bytes(remaining, "little")) * _MURMUR2_M & _UINT32
    state = (state ^ state >> 13) * _MURMUR2_M & _UINT32
    return (state ^ state >> 15) & 0x7FFFFFFF


def murmur2(column: pa.Array) -> NDArray[np.int32]:
    """Return Kafka's 32-bit murmur2 (seed 0x9747b28c) of each key, as Java's signed int.

    The time is linear in the number of keys and bytes, even if key lengths differ widely. Source:
    ``org.apache.kafka.common.utils.Utils.murmur2``. A null has the hash of the empty key. Raises TypeError for keys
    of another type than binary, large_binary, string or large_string.
    """
    data, lengths = bytes_of(column), lengths_of(column, of_null=0)
    # The last word of the last key may extend past the data by up to four bytes.
    padded = np.empty(len(data) + 4, dtype=np.uint8)
    padded[: len(data)] = data
    # The little-endian word that starts at each byte.
    words: _Words = np.ndarray((len(data) + 1,), dtype="<u4", buffer=padded, strides=(1,))
    # With the longest keys first, the keys with remaining words are always a prefix.
    fewer = lengths.max(initial=0) - lengths
    # numpy uses a radix sort for uint16, which reduces the time for keys of mixed lengths by a third.
    order = np.argsort(fewer.astype(np.uint16) if fewer.max(initial=0) < 2**16 else fewer, kind="stable")
    starts, lengths = (np.cumsum(lengths) - lengths)[order], lengths[order]
    state = np.uint32(_MURMUR2_SEED) ^ lengths.astype(np.uint32)
    counts, done = lengths // 4, 0
    while (active := len(counts) - int(np.searchsorted(counts[::-1], done, side="right"))) > _FEW_KEYS:
        mixed = _murmur2_mix(words[starts[:active] + 4 * done])
        state[:active] = (state[:active] * np.uint32(_MURMUR2_M)) ^ mixed
        done += 1
    # A step over few long keys wastes its fixed cost. A huge key among short ones so costs only its own bytes.
    for i in range(active):
        start, one = int(starts[i]), int(state[i])
        for word in _murmur2_mix(words[start + 4 * done : start + 4 * int(counts[i]) : 4]).data:
            one = (one * _MURMUR2_M & _UINT32) ^ word
        state[i] = one
    sizes = lengths % 4
    state ^= words[starts + lengths - sizes] & _TAIL_MASKS[sizes]
    state *= _MURMUR2_TAIL_FACTORS[sizes]
    state ^= state >> 13
    state *= np.uint32(_MURMUR2_M)
    state ^= state >> 15
    hashes = np.empty_like(state)
    hashes[order] = state
    return hashes.view(np.int32)


def _murmur2_mix(words: _Words) -> _Words:
    mixed = words * np.uint32(_MURMUR2_M)
    mixed ^= mixed >> 24
    mixed *= np.uint32(_MURMUR2_M)
    return mixed


def crc32(column: pa.Array) -> _Words:
    """Return the CRC-32 (that of zlib) of each key.

    Source: ``rd_kafka_msg_partitioner_consistent`` of librdkafka. A null has the hash of the empty key, 0. Raises
    TypeError as `murmur2`.
    """
    data, ends = bytes_of(column), np.cumsum(lengths_of(column, of_null=0)).tolist()
    return np.fromiter((zlib.crc32(data[begin:end]) for begin, end in pairwise([0, *ends])), np.uint32, len(column))


def _contents_of(records: pa.RecordBatch) -> pa.Array:
    """Return the content of each row as one value, as `partition_of` defines it for rows without a key."""
    headers = headers_of(_column(records, "headers"))
    ends = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(headers.counts)])
    entries = joined(*_framed(headers.keys), *_framed(headers.values))
    each = pc.binary_join(pa.LargeListArray.from_arrays(pa.array(ends), entries), no_bytes())
    time = numbers_as_bytes(times_of(_column(records, "timestamp")))
    return joined(*_framed(_column(records, "value")), time, each)


def _column(records: pa.RecordBatch, name: str) -> pa.Array:
    field = RECORDS.field(name)
    if name not in records.schema.names:
        return pa.nulls(records.num_rows, field.type)
    column = records.column(name)
    if column.type != field.type:
        raise TypeError(f"the column {name} of records is {field.type}, got {column.type}")
    return column


def _framed(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    return numbers_as_bytes(lengths_of(column, of_null=NULL_LENGTH)), column
