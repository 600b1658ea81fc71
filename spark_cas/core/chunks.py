"""Split the rows of a partition into chunks by records, bytes and seconds."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from spark_cas.core.errors import RecordTooLargeError
from spark_cas.core.plan import BatchProgress
from spark_cas.core.records import RECORDS, record_sizes, row_name


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """The limits of one atomic append."""

    max_records: int = 500_000
    max_bytes: int = 32 * 1024 * 1024
    max_seconds: float = 30.0
    """The maximum age of a chunk, in seconds. An older chunk is full when the next rows arrive."""
    max_record_bytes: int | None = None
    """The largest record that the log accepts, in bytes; None if only the chunk limit applies."""
    max_record_setting: str = "a limit of the log"
    """The name of the setting with that limit, for errors."""
    max_bytes_setting: str = field(default="the limit of bytes per chunk", compare=False)
    """The name of the setting with the value of ``max_bytes``, for errors."""

    def __post_init__(self) -> None:
        least = min(self.max_records, self.max_bytes, 1 if self.max_record_bytes is None else self.max_record_bytes)
        if least < 1 or self.max_seconds < 0:
            raise ValueError(f"a chunk must be allowed at least one record and one byte, got {self}")


@dataclass(frozen=True, slots=True)
class Chunk:
    """The records of one atomic append to one partition, and the values for the ledger entry.

    A chunk without records closes the job in its partition and moves no offset.
    """

    records: pa.Table
    """In the schema `RECORDS`."""
    rows: int
    """The number of rows of the job in this partition, including these."""
    digest: str
    """The `RunningDigest` of those rows; for a stream, their `multiset_digest`."""
    complete: bool
    """Whether the chunk includes the job's last row in this partition."""
    task: str
    """The run and task that appends."""
    time_ms: int
    """The time of the chunk, milliseconds since 1970. Records without a timestamp get this time or the time of
    sending."""
    claims: pa.Array | None = None
    """The expected offset of each row, int64, null or -1 for no check; None if no row has one. The log does not store
    it."""
    batch: BatchProgress | None = None
    """For a stream: the rows of the batch in the partition, including these."""


class ChunkBuffer:
    """Collect the rows of one partition and split them into chunks.

    The rows are in `RECORDS` or have more columns. The buffer keeps a full chunk until more rows arrive, so that the
    caller knows which chunk is the last.
    """

    def __init__(self, limits: ChunkLimits, partition: int) -> None:
        self._limits = limits
        self._partition = partition
        self._batches: list[pa.RecordBatch] = []
        self._since = 0.0
        self.records = 0
        self.bytes = 0

    def add(self, records: pa.RecordBatch, now: float, first_row: int) -> Iterator[pa.Table]:
        """Add a batch and yield each chunk that became full before the end of the batch.

        ``now`` is in seconds on any monotonic clock. ``first_row`` is the number of the batch's first row within the
        job's partition, for errors. Raises RecordTooLargeError for a record above the limit of the log or of a chunk.
        """
        sizes = record_sizes(records)
        self._refuse_too_large(records, sizes, first_row)
        upto = np.cumsum(sizes)
        start = 0
        while start < records.num_rows:
            room = self._room(upto, start, now)
            if room == 0:
                yield self.take()
                continue
            if not self._batches:
                self._since = now
            self._batches.append(records.slice(start, room))
            self.records += room
            self.bytes += int(upto[start + room - 1] - (upto[start - 1] if start else 0))
            start += room

    def take(self) -> pa.Table:
        """Return the buffered rows, possibly none, and clear the buffer."""
        table = pa.Table.from_batches(self._batches, None if self._batches else RECORDS)
        self._batches, self.records, self.bytes = [], 0, 0
        return table

    def _room(self, upto: np.ndarray, start: int, now: float) -> int:
        """Return how many rows of a batch from ``start`` on still fit; 0 if the chunk is full or too old."""
        if self._batches and now - self._since >= self._limits.max_seconds:
            return 0
        before = upto[start - 1] if start else 0
        by_bytes = int(np.searchsorted(upto, before + self._limits.max_bytes - self.bytes, "right")) - start
        return min(by_bytes, self._limits.max_records - self.records, len(upto) - start)

    def _refuse_too_large(self, records: pa.RecordBatch, sizes: np.ndarray, first_row: int) -> None:
        largest, most = sizes.max(initial=0), self._limits.max_record_bytes
        if most is not None and largest > most:
            limit = f"the log takes records of at most {most} bytes ({self._limits.max_record_setting})"
            fix = "Raise that setting"
        elif largest > self._limits.max_bytes:
            most = self._limits.max_bytes
            limit = f"a chunk may hold {most}"
            fix = f"Raise {self._limits.max_bytes_setting} (at most 64 MiB)"
        else:
            return
        row = int(np.argmax(sizes > most))
        name = row_name(first_row + row, self._partition, records.column("key")[row].as_py())
        raise RecordTooLargeError(
            f"{name} takes {sizes[row]} bytes, and {limit}. Nothing of its chunk was appended. {fix}, or make the "
            f"record smaller.",
            partition=self._partition,
            row=first_row + row,
        )
