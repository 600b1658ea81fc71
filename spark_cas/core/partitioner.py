"""Kafka's partitioners over Arrow arrays: a row lands in the partition that Kafka's own clients would choose.

Keys of rows are hashed side by side, four bytes of every key at a time, and never row by row.
"""

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_cas.core.columns import NULL_LENGTH, bytes_of, headers_of, lengths_of, nulls_of, times_of
from spark_cas.core.records import RECORDS

Partitioner: TypeAlias = Literal["murmur2", "crc32"]
"""``murmur2`` is the Java client's default, ``crc32`` is librdkafka's ``consistent``."""

DEFAULT_PARTITIONER: Partitioner = "murmur2"
"""Of a log without a recorded partitioner."""

PARTITIONERS: tuple[Partitioner, ...] = get_args(Partitioner)

_Words: TypeAlias = NDArray[np.uint32]

_MAX_PARTITIONS = 2**31 - 1

# With more keys left than this, one more word of all is cheaper than going on key by key (measured).
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

    Kafka does not define the partition of a null key: the Java client and librdkafka's ``*_random`` choose any
    partition, ``murmur2`` and ``consistent`` that of the empty key. Here the content of the row is hashed in place of
    the key, so that a second attempt assigns the same partition. The content is these bytes, where numbers are
    int64, little-endian: length of the value (-1 for null), value, timestamp in milliseconds (-2**63 for null), and
    for each header the length of its key (-1 for null), its key, the length of its value (-1 for null), its value.

    ``records`` is in ``RECORDS``. Its key may also be large_binary, string or large_string. A missing column other
    than the key counts as null. Raises ``ValueError`` for ``partitions`` below 1 or above 2**31 - 1, ``KeyError`` if
    there is no column ``key``, and ``TypeError`` for a column of another type.
    """
    if not 1 <= partitions <= _MAX_PARTITIONS:
        raise ValueError(f"a log has from 1 to {_MAX_PARTITIONS} partitions, got {partitions}")
    hashed: Callable[[pa.Array], _Words]
    match partitioner:
        case "murmur2":
            hashed = _positive_murmur2
        case "crc32":
            hashed = crc32
        case _:
            assert_never(partitioner)
    keys = records.column("key")
    hashes = hashed(keys)
    if keys.null_count:
        hashes[nulls_of(keys)] = hashed(_contents_of(records.filter(keys.is_null())))
    return pa.array((hashes % np.uint32(partitions)).astype(np.int32))


@dataclass(frozen=True, slots=True)
class Placement:
    """How the rows of a write were assigned to partitions by their keys."""

    partitioner: Partitioner
    named: bool
    """Whether an option of the write names it. Then the first plan of a log without a record records it."""


def known_partitioner(name: object) -> Partitioner:
    """Return a partitioner from its recorded name. Raises ValueError for the name of another version."""
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
    rest = key[4 * words :]
    if rest:
        state = (state ^ int.from_bytes(rest, "little")) * _MURMUR2_M & _UINT32
    state = (state ^ state >> 13) * _MURMUR2_M & _UINT32
    return (state ^ state >> 15) & 0x7FFFFFFF


def murmur2(keys: pa.Array | pa.ChunkedArray) -> NDArray[np.int32]:
    """Kafka's 32-bit murmur2 (seed 0x9747b28c) of each key, as Java's signed int.

    ``keys`` is binary, large_binary, string or large_string; a null hashes like the empty key. Time is linear
    in the number of keys and bytes, however much lengths differ. Raises ``TypeError`` for keys of another
    type. Source: ``org.apache.kafka.common.utils.Utils.murmur2``.
    """
    return _chunk_by_chunk(_murmur2, keys).view(np.int32)


def crc32(keys: pa.Array | pa.ChunkedArray) -> NDArray[np.uint32]:
    """The CRC-32 (that of zlib) of each key.

    ``keys`` is binary, large_binary, string or large_string; a null hashes like the empty key, to 0. Time is
    linear in the number of keys and bytes, however much lengths differ. Raises ``TypeError`` for keys of
    another type. Source: ``rd_kafka_msg_partitioner_consistent`` of librdkafka.
    """
    return _chunk_by_chunk(_crc32, keys)


def _positive_murmur2(keys: pa.Array) -> _Words:
    return _murmur2(keys) & np.uint32(0x7FFFFFFF)


def _chunk_by_chunk(hashed: Callable[[pa.Array], _Words], keys: pa.Array | pa.ChunkedArray) -> _Words:
    if isinstance(keys, pa.ChunkedArray):
        return np.concatenate([np.zeros(0, dtype=np.uint32), *(hashed(chunk) for chunk in keys.chunks)])
    return hashed(keys)


@dataclass(frozen=True, slots=True)
class _Keys:
    """Keys in an order in which those with words left are always a prefix: longest first."""

    order: NDArray[np.intp]
    """Where each key stands in the column."""
    starts: NDArray[np.int64]
    """Index of each key's first byte."""
    lengths: NDArray[np.int64]
    """Length of each key in bytes."""
    words: _Words
    """At each byte index the little-endian word that begins there; past the last byte it holds anything."""

    @classmethod
    def of(cls, column: pa.Array) -> "_Keys":
        data = bytes_of(column)
        lengths = lengths_of(column, of_null=0)
        starts = np.cumsum(lengths) - lengths
        # The last bytes of the last key are read as part of a whole word: the copy has room for it.
        padded = np.empty(len(data) + 4, dtype=np.uint8)
        padded[: len(data)] = data
        words: _Words = np.ndarray((len(data) + 1,), dtype="<u4", buffer=padded, strides=(1,))
        fewer = lengths.max(initial=0) - lengths
        # Numbers this small numpy sorts by digits: hashing keys of mixed lengths then takes two thirds of the time.
        order = np.argsort(fewer.astype(np.uint16) if fewer.max(initial=0) < 2**16 else fewer, kind="stable")
        return cls(order, starts[order], lengths[order], words)

    def fold(
        self,
        state: _Words,
        step: Callable[[_Words, _Words], _Words],
        rest: Callable[[int, _Words], int],
    ) -> None:
        """Feed the whole words of every key into its state, in place.

        ``step`` takes the states of many keys and one word of each; ``rest`` takes one state and all words
        left of its key. Once few long keys remain, a step would cost its fixed price for next to nothing, so
        they go to ``rest``: one huge key among short ones costs only its own bytes.
        """
        counts = self.lengths // 4
        ascending = counts[::-1]
        done = 0
        while (active := len(counts) - int(np.searchsorted(ascending, done, side="right"))) > _FEW_KEYS:
            state[:active] = step(state[:active], self.words[self.starts[:active] + 4 * done])
            done += 1
        for i in range(active):
            start = int(self.starts[i])
            left = self.words[start + 4 * done : start + 4 * int(counts[i]) : 4]
            state[i] = rest(int(state[i]), left)

    def tails(self) -> tuple[NDArray[np.int64], _Words]:
        """How many bytes (0 to 3) each key has behind its whole words, and those bytes as a word."""
        sizes = self.lengths % 4
        return sizes, self.words[self.starts + self.lengths - sizes] & _TAIL_MASKS[sizes]

    def in_column_order(self, state: _Words) -> _Words:
        hashes = np.empty_like(state)
        hashes[self.order] = state
        return hashes


def _murmur2(column: pa.Array) -> _Words:
    keys = _Keys.of(column)
    state = np.uint32(_MURMUR2_SEED) ^ keys.lengths.astype(np.uint32)
    keys.fold(state, _murmur2_step, _murmur2_rest)
    sizes, tails = keys.tails()
    state ^= tails
    state *= _MURMUR2_TAIL_FACTORS[sizes]
    state ^= state >> 13
    state *= np.uint32(_MURMUR2_M)
    state ^= state >> 15
    return keys.in_column_order(state)


def _murmur2_mix(words: _Words) -> _Words:
    mixed = words * np.uint32(_MURMUR2_M)
    mixed ^= mixed >> 24
    mixed *= np.uint32(_MURMUR2_M)
    return mixed


def _murmur2_step(state: _Words, words: _Words) -> _Words:
    return (state * np.uint32(_MURMUR2_M)) ^ _murmur2_mix(words)


def _murmur2_rest(state: int, words: _Words) -> int:
    for mixed in _murmur2_mix(words).data:
        state = (state * _MURMUR2_M & _UINT32) ^ mixed
    return state


def _crc32_tables() -> _Words:
    """Table ``n`` maps a byte to the remainder of that byte with ``n`` zero bytes behind it."""
    table: _Words = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> np.uint32(1)) ^ (table & np.uint32(1)) * np.uint32(0xEDB88320)
    tables = [table]
    for _ in range(3):
        tables.append((tables[-1] >> 8) ^ table[tables[-1] & 0xFF])
    return np.stack(tables)


_CRC32_TABLES = _crc32_tables()


def _crc32(column: pa.Array) -> _Words:
    keys = _Keys.of(column)
    state = np.full(len(column), _UINT32, dtype=np.uint32)
    keys.fold(state, _crc32_step, _crc32_rest)
    sizes, tails = keys.tails()
    for i in range(3):
        longer = (state >> 8) ^ _CRC32_TABLES[0][(state ^ (tails >> (8 * i))) & 0xFF]
        state = np.where(sizes > i, longer, state)
    return keys.in_column_order(~state)


def _crc32_step(state: _Words, words: _Words) -> _Words:
    mixed = state ^ words
    state = _CRC32_TABLES[3][mixed & 0xFF]
    state ^= _CRC32_TABLES[2][(mixed >> 8) & 0xFF]
    state ^= _CRC32_TABLES[1][(mixed >> 16) & 0xFF]
    state ^= _CRC32_TABLES[0][mixed >> 24]
    return state


def _crc32_rest(state: int, words: _Words) -> int:
    return zlib.crc32(words.data, state ^ _UINT32) ^ _UINT32


def _contents_of(records: pa.RecordBatch) -> pa.Array:
    """The content of each row as one value, as ``partition_of`` defines it for rows without a key."""
    headers = headers_of(_column(records, "headers"))
    ends = np.cumsum(headers.counts)
    entries = pa.LargeListArray.from_arrays(
        pa.array(np.concatenate([np.zeros(1, dtype=np.int64), ends])),
        _joined([*_framed(headers.keys), *_framed(headers.values)]),
    )
    time = _number_bytes(times_of(_column(records, "timestamp")))
    return _joined([*_framed(_column(records, "value")), time, pc.binary_join(entries, _no_bytes())])


def _column(records: pa.RecordBatch, name: str) -> pa.Array:
    field = RECORDS.field(name)
    if name not in records.schema.names:
        return pa.nulls(records.num_rows, field.type)
    column = records.column(name)
    if column.type != field.type:
        raise TypeError(f"the column {name} of records is {field.type}, got {column.type}")
    return column


def _framed(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The length of each value, and the value; both large, as the rows may pass 2 GiB in sum."""
    lengths = lengths_of(column, of_null=NULL_LENGTH)
    return _number_bytes(lengths), column.cast(pa.large_binary()).fill_null(b"")


def _joined(columns: list[pa.Array]) -> pa.Array:
    """The values of each row, one after the other."""
    return pc.binary_join_element_wise(*columns, _no_bytes())


def _number_bytes(numbers: NDArray[np.int64]) -> pa.Array:
    """The eight bytes of each number, as large_binary."""
    bounds = np.arange(0, 8 * len(numbers) + 1, 8, dtype=np.int64)
    buffers = [None, pa.py_buffer(bounds.data), pa.py_buffer(numbers.data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(numbers), buffers)


def _no_bytes() -> pa.Scalar:
    # Made when it is needed: the first scalar that pyarrow makes imports pandas.
    return pa.scalar(b"", pa.large_binary())
