"""Cutting the rows of a partition into chunks: by records, bytes and seconds."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_cas.core.errors import RecordTooLargeError
from spark_cas.core.plan import BatchProgress
from spark_cas.core.records import RECORDS, record_sizes


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """How large one atomic append may grow."""

    max_records: int = 500_000
    max_bytes: int = 32 * 1024 * 1024
    max_seconds: float = 30.0
    """A chunk that has waited this long for more rows is appended when the next ones come."""
    max_record_bytes: int | None = None
    """The largest record that the log takes; None where a chunk may be one record."""
    max_record_setting: str = "a limit of the log"
    """The setting with that limit, for errors."""

    def __post_init__(self) -> None:
        least = min(self.max_records, self.max_bytes, 1 if self.max_record_bytes is None else self.max_record_bytes)
        if least < 1 or self.max_seconds < 0:
            msg = f"a chunk must be allowed at least one record and one byte, got {self}"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class Chunk:
    """The records of one atomic append to one partition, and what the ledger says once they are in.

    A chunk without records closes the job in its partition: it moves no offset.
    """

    records: pa.Table
    """In `RECORDS`."""
    rows: int
    """Rows of the job in this partition, these included."""
    digest: str
    """`RunningDigest` over those rows; of a stream, `multiset_digest`."""
    complete: bool
    """Whether the job's last row in this partition is in here."""
    task: str
    """The run and task that appends."""
    time_ms: int
    """When the chunk was made, milliseconds since 1970. Records without a time get this one, or that of sending."""
    claims: pa.Array | None = None
    """What each row expects, int64, null or -1 for no check; None when none does. It is checked, and not stored."""
    batch: BatchProgress | None = None
    """Of a stream: what the partition holds of the batch, these rows included."""


class ChunkBuffer:
    """Collects the rows of one partition, in `RECORDS` or with more columns, and says when they make a chunk.

    A full chunk is held until more rows come, so that the last one is known to be the last.
    """

    def __init__(self, limits: ChunkLimits, partition: int) -> None:
        self._limits = limits
        self._partition = partition
        self._batches: list[pa.RecordBatch] = []
        self._since = 0.0
        self.records = 0
        self.bytes = 0

    def add(self, records: pa.RecordBatch, now: float, first_row: int) -> Iterator[pa.Table]:
        """Take in a batch and yield each chunk that is full before the batch's end.

        ``now`` is in seconds on any steady clock; ``first_row`` is the batch's first row, counted in the
        job's partition, for the error that names a record larger than a chunk may be.
        """
        sizes = record_sizes(records)
        self._refuse_too_large(sizes, first_row)
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
        """Hand over what was collected, possibly nothing, and begin anew."""
        table = pa.Table.from_batches(self._batches, None if self._batches else RECORDS)
        self._batches, self.records, self.bytes = [], 0, 0
        return table

    def _room(self, upto: np.ndarray, start: int, now: float) -> int:
        """How many rows of a batch from ``start`` on still fit; 0 when the chunk is full or has waited."""
        if self._batches and now - self._since >= self._limits.max_seconds:
            return 0
        before = upto[start - 1] if start else 0
        by_bytes = int(np.searchsorted(upto, before + self._limits.max_bytes - self.bytes, "right")) - start
        return min(by_bytes, self._limits.max_records - self.records, len(upto) - start)

    def _refuse_too_large(self, sizes: np.ndarray, first_row: int) -> None:
        largest = sizes.max(initial=0)
        most = self._limits.max_record_bytes
        if most is not None and largest > most:
            row = int(np.argmax(sizes > most))
            raise RecordTooLargeError(
                f"row {first_row + row} of partition {self._partition} takes {sizes[row]} bytes, and the log takes "
                f"records of at most {most} bytes ({self._limits.max_record_setting}). Nothing of its chunk was "
                f"appended. Raise that setting, or make the record smaller."
            )
        if largest > self._limits.max_bytes:
            row = int(np.argmax(sizes > self._limits.max_bytes))
            raise RecordTooLargeError(
                f"row {first_row + row} of partition {self._partition} takes {sizes[row]} bytes, and a chunk may "
                f"hold {self._limits.max_bytes}. Raise the limit of bytes per chunk (at most 64 MiB), or make the "
                f"record smaller."
            )
