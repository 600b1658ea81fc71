"""The possible outcomes of an append, as a closed union of values, and the totals over appends (KIP-192).

Each outcome except `Appended` and `Unknown` is a definite rejection: no row of the attempt is or becomes visible. A
failure counts as definite only if it is proven. Any other failure is `Unknown`.
"""

from dataclasses import dataclass
from typing import TypeGuard

import pyarrow as pa

from spark_cas.core.offsets import OffsetRange


@dataclass(frozen=True, slots=True)
class Appended:
    """The chunk is committed at ``range``; the next append expects ``range.end_offset``."""

    range: OffsetRange
    count: int
    """The number of appended records. On a log with gaps ``len(range)`` may be larger."""
    timestamp_ms: int | None
    """The time that the log assigned to records without one, or to all; None if it assigned none."""
    start_offset: int
    """The oldest retained offset of the partition (KIP-192: distinguishes retention from data loss)."""
    has_offset: bool
    """Whether the log's response contained the offset (KIP-192). If not, the writer proved it from the end
    offsets."""
    resolved: bool
    """Whether the response was lost, and the log proved that the chunk is stored."""
    attempts: int = 1
    """The number of append attempts, including retries."""
    aborted_rows: int = 0
    """Rows of earlier attempts that were aborted. Readers of committed records never see them."""

    @property
    def has_timestamp(self) -> bool:
        """Whether the log assigned a time to the records (KIP-192)."""
        return self.timestamp_ms is not None


@dataclass(frozen=True, slots=True)
class Conflict:
    """Another writer's record is at or after the expected offset. Bootstrap again from the expected offset."""

    expected: int
    actual: int
    """The end offset of the partition, which the next attempt must expect."""
    start_offset: int
    """The oldest retained offset. If it is above ``expected``, the records between the two were trimmed and cannot be
    read."""


@dataclass(frozen=True, slots=True)
class RowConflict:
    """The expected offset of a row does not match its actual offset. Read the new records and renumber the rows."""

    row: int
    """The first such row, counted from 0 in the job's rows of the partition."""
    expected: int
    actual: int
    """The offset that the row would get."""
    truncated: bool
    """Whether the expected offset is after the end, and no earlier row proves that the log lost no records."""


@dataclass(frozen=True, slots=True)
class KeyConflict:
    """The expected offset of a row's key does not match. Read the key again from the expected offset."""

    row: int
    key: str
    """The key as readable text; long keys are cut."""
    expected: int
    actual: int | None
    """The offset of the newest record of the key; None if no record was found but one may have been removed."""
    end_offset: int
    """The offset up to which the log was checked."""


@dataclass(frozen=True, slots=True)
class Truncated:
    """The log is shorter than the writer has seen: acknowledged records are lost. Stop."""

    expected: int
    actual: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """A newer run of the job, or another job that expects an offset, has claimed the partition.

    Never claim in a loop.
    """

    by: str | None
    """The task that claimed it; None if the backend cannot determine it."""


@dataclass(frozen=True, slots=True)
class ProgressLost:
    """The job has a plan but no ledger entry, and no expected offset can decide. A person must check the log."""

    job: str


@dataclass(frozen=True, slots=True)
class LayoutChanged:
    """The partition count changed (KIP-253). Plan again. Both values are layout epochs."""

    planned: int
    actual: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """The response was lost, and the outcome is unresolved. Claim again and read the ledger first."""

    cause: str


Refusal = Conflict | RowConflict | KeyConflict | Truncated | Fenced | ProgressLost | LayoutChanged
"""A definite rejection: no row of the attempt is or becomes visible."""

Outcome = Appended | Refusal | Unknown


def is_lost(refusal: Refusal | None) -> TypeGuard[Truncated | RowConflict]:
    """Return whether a rejection reports data loss, which a backend confirms with a second read."""
    return isinstance(refusal, Truncated) or (isinstance(refusal, RowConflict) and refusal.truncated)


@dataclass(frozen=True, slots=True)
class Appends:
    """Totals of `Appended` over chunks with records. All fields are None if there was none, or if it is not known.

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
