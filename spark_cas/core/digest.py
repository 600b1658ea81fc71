"""Digests of rows, which distinguish changed input from identical input: in order for a job, in any for a batch."""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from spark_cas.core.records import (
    NULL_LENGTH,
    RECORDS,
    Headers,
    bytes_of,
    headers_of,
    joined,
    lengths_of,
    no_bytes,
    numbers_as_bytes,
    times_of,
)

_VERSION = b"spark_cas rows 1"

_NULL_HEADER_LENGTH = -2
_MODULUS = 1 << 128


class RunningDigest:
    """An order-sensitive 128-bit digest of rows in `RECORDS`, independent of how the rows are split into batches.

    Two sequences of rows have the same digest exactly if they have the same rows in the same order. The exception is
    a collision of xxh3, and the digest does not protect against deliberate collisions. Null differs from empty; only
    null headers equal an empty list. A null timestamp counts as null, even if a backend sets the time later.

    The definition is stable across releases, because the progress of jobs contains the digest. Numbers are int64,
    little-endian. Ten streams, each concatenated over all rows and hashed with xxh3_128 (seed 0):

    1. for each row the length of its key in bytes, -1 for null
    2. for each row the bytes of its key
    3. for each row the length of its value in bytes, -1 for null
    4. for each row the bytes of its value
    5. for each row its timestamp in milliseconds since 1970 UTC, -2**63 for null
    6. for each row the number of its headers, 0 for null
    7. for each header the length of its key in UTF-8 bytes, -1 for null, -2 when the header itself is null
    8. for each header the bytes of its key
    9. for each header the length of its value in bytes, -1 for null
    10. for each header the bytes of its value

    The digest is xxh3_128 (seed 0) over the 16 ASCII bytes ``spark_cas rows 1``, the number of rows, and the ten
    stream digests in this order. Each stream digest is xxHash's canonical (big-endian) 16 bytes. Lengths and bytes
    have separate streams, so that Arrow's buffers are hashed without a copy.
    """

    def __init__(self) -> None:
        self._rows = 0
        self._streams = tuple(xxhash.xxh3_128() for _ in range(10))

    @property
    def rows(self) -> int:
        return self._rows

    def update(self, records: pa.RecordBatch) -> None:
        """Add the rows of one batch to the digest.

        Raises:
            TypeError: The batch has another schema than `RECORDS`. The digest is unchanged.
        """
        _require_records(records)
        key, value, headers_column, timestamp = records.columns
        headers = headers_of(headers_column)
        parts = (
            lengths_of(key, of_null=NULL_LENGTH).data,
            bytes_of(key),
            lengths_of(value, of_null=NULL_LENGTH).data,
            bytes_of(value),
            times_of(timestamp).data,
            headers.counts.data,
            _key_lengths(headers).data,
            bytes_of(headers.keys),
            lengths_of(headers.values, of_null=NULL_LENGTH).data,
            bytes_of(headers.values),
        )
        for stream, part in zip(self._streams, parts, strict=True):
            stream.update(part)
        self._rows += records.num_rows

    def hexdigest(self) -> str:
        """Return the digest of the rows so far as 32 hexadecimal digits. More rows may follow."""
        whole = xxhash.xxh3_128(_VERSION + self._rows.to_bytes(8, "little"))
        for stream in self._streams:
            whole.update(stream.digest())
        return whole.hexdigest()


def multiset_digest(records: pa.Table) -> str:
    """Return a 128-bit digest of rows that does not depend on their order or their batches.

    Two collections of rows have the same digest exactly if they have the same rows equally often. The exception is a
    hash collision, and the digest does not protect against deliberate collisions. Nulls count as in `RunningDigest`.

    The definition is stable across releases, because the progress of streams contains the digest. It is the sum,
    modulo 2**128, of a number for each row, written as 32 hexadecimal digits. That number is xxh3_128 (seed 0) over
    the following, with lengths and counts as little-endian int64:

    1. the length of its key in bytes, -1 for null
    2. the length of its value in bytes, -1 for null
    3. its timestamp in milliseconds since 1970 UTC, -2**63 for null
    4. the number of its headers, 0 for null
    5. the bytes of its key, then those of its value
    6. for each header, the length of its key in UTF-8 bytes, -1 for null, -2 for a header that is null itself
    7. then the length of its value in bytes, -1 for null
    8. then the bytes of its key, and those of its value

    Raises TypeError if the rows have another schema than `RECORDS`.
    """
    total = 0
    for batch in records.to_batches():
        # Each digest is four 32-bit digits. Their sums over a batch stay below 2**64.
        digits = np.frombuffer(b"".join(row_digests(batch)), ">u4").reshape(-1, 4)
        high, upper, lower, low = digits.sum(axis=0, dtype=np.uint64).tolist()
        total += (high << 96) + (upper << 64) + (lower << 32) + low
    return _written(total)


def joined_digest(*digests: str) -> str:
    """Return the digest of the union of several collections of rows; without arguments, the digest of no rows."""
    return _written(sum(int(digest, 16) for digest in digests))


def _written(total: int) -> str:
    return f"{total % _MODULUS:032x}"


def row_digests(records: pa.RecordBatch) -> list[bytes]:
    """Return the number of each row as `multiset_digest` defines it: 16 bytes, big-endian."""
    _require_records(records)
    if records.num_rows == 0:
        return []
    key, value, headers, timestamp = records.columns
    counts = headers_of(headers).counts
    lengths = (lengths_of(column, of_null=NULL_LENGTH) for column in (key, value))
    columns = [numbers_as_bytes(*lengths, times_of(timestamp), counts), key, value]
    if counts.any():
        columns.append(_headers_as_bytes(headers))
    rows = joined(*columns)
    bounds = np.frombuffer(rows.buffers()[1], np.int64, len(rows) + 1, rows.offset * 8).tolist()
    data = memoryview(rows.buffers()[2])
    digest = xxhash.xxh3_128_digest
    return [digest(data[begin:end]) for begin, end in itertools.pairwise(bounds)]


def _headers_as_bytes(column: pa.Array) -> pa.Array:
    """Return all headers of each row as one value."""
    headers = headers_of(column)
    fixed = numbers_as_bytes(_key_lengths(headers), lengths_of(headers.values, of_null=NULL_LENGTH))
    each = joined(fixed, headers.keys, headers.values)
    ends = np.cumsum(headers.counts)
    begins = pa.array(np.concatenate(([0], ends)))
    return pc.binary_join(pa.LargeListArray.from_arrays(begins, each), no_bytes())


def _require_records(records: pa.RecordBatch) -> None:
    if not records.schema.equals(RECORDS):
        raise TypeError(f"a digest is taken of records in the schema RECORDS, got {records.schema}")


def _key_lengths(headers: Headers) -> NDArray[np.int64]:
    lengths = lengths_of(headers.keys, of_null=NULL_LENGTH)
    lengths[headers.nulls] = _NULL_HEADER_LENGTH
    return lengths
