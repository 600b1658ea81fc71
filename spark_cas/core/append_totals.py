"""The combined append responses of one task in one partition (KIP-192)."""

from dataclasses import dataclass

import pyarrow as pa

from spark_cas.core.outcome import Appended


@dataclass(frozen=True, slots=True)
class Appends:
    """Totals over the appends of chunks with records. All fields are None if there was none, or if it is not known.

    The totals may differ between attempts of a task. The rows of a job in a partition, and their offsets, are in its
    `Progress`.
    """

    attempts: int | None = None
    """The number of append attempts. A number greater than that of the chunks means that there were retries."""
    aborted_rows: int | None = None
    """The number of rows that were sent and aborted, as far as known."""
    timestamp_ms: int | None = None
    """The time that the log assigned to records of the newest chunk with such a time; None if it assigned none."""
    has_offset: bool | None = None
    """Whether the log's responses contained the offset of every chunk. If not, the writer proved it from the end
    offsets."""
    start_offset: int | None = None
    """The oldest retained offset at the newest append."""

    @property
    def has_timestamp(self) -> bool | None:
        """Whether the log assigned a time to records."""
        return None if self.attempts is None else self.timestamp_ms is not None

    def and_then(self, appended: Appended) -> "Appends":
        """Return the totals with one more append. An append without records, which closes a job, changes nothing."""
        if appended.count == 0:
            return self
        return Appends(
            attempts=(self.attempts or 0) + appended.attempts,
            aborted_rows=(self.aborted_rows or 0) + appended.aborted_rows,
            timestamp_ms=self.timestamp_ms if appended.timestamp_ms is None else appended.timestamp_ms,
            has_offset=self.has_offset is not False and appended.has_offset,
            start_offset=appended.start_offset,
        )


NO_TOTALS = Appends()


@dataclass(frozen=True, slots=True)
class Tally:
    """The chunks that one attempt of a task appended, in all partitions. Unlike `Appends`, no log stores it."""

    bytes: int = 0
    """The size of the rows in memory, before compression."""
    chunks: int = 0
    retries: int = 0
    """The number of append attempts in addition to one for each chunk."""

    def and_then(self, appended: Appended, records: pa.Table) -> "Tally":
        """Return the tally with one more chunk. One without rows, which closes a job, changes nothing."""
        if appended.count == 0:
            return self
        return Tally(self.bytes + records.nbytes, self.chunks + 1, self.retries + appended.attempts - 1)

    def restarted(self) -> "Tally":
        """Return the tally at the start of another transaction, with the chunks of the aborted one as retries."""
        return Tally(retries=self.retries + self.chunks)
