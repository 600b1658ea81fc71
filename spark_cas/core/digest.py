"""The running digest of the rows of a job, which distinguishes changed input from identical input."""

import pyarrow as pa
import xxhash

from spark_cas.core.columns import NULL_LENGTH, bytes_of, headers_of, lengths_of, times_of
from spark_cas.core.records import RECORDS

_VERSION = b"spark_cas rows 1"

_NULL_HEADER_LENGTH = -2


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
        """The number of rows hashed so far."""
        return self._rows

    def update(self, records: pa.RecordBatch) -> None:
        """Add the rows of one batch to the digest.

        Raises:
            TypeError: The batch has another schema than `RECORDS`. The digest is unchanged.
        """
        if not records.schema.equals(RECORDS):
            raise TypeError(f"a digest is taken of records in the schema RECORDS, got {records.schema}")
        key, value, headers_column, timestamp = records.columns
        headers = headers_of(headers_column)
        header_key_lengths = lengths_of(headers.keys, of_null=NULL_LENGTH)
        header_key_lengths[headers.nulls] = _NULL_HEADER_LENGTH
        parts = (
            lengths_of(key, of_null=NULL_LENGTH).data,
            bytes_of(key),
            lengths_of(value, of_null=NULL_LENGTH).data,
            bytes_of(value),
            times_of(timestamp).data,
            headers.counts.data,
            header_key_lengths.data,
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
