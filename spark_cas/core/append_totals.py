"""What the appends of one task to one partition said, all together (KIP-192)."""

from dataclasses import dataclass

from spark_cas.core.outcome import Appended


@dataclass(frozen=True, slots=True)
class Appends:
    """What was said to who appended chunks with records. All is None where it appended none, or it is not known.

    Attempts of one task differ in it: which rows a partition holds of a job, and where, is in its `Progress`.
    """

    attempts: int | None = None
    """How often it was tried to append a chunk: more than there were chunks tells of retries."""
    aborted_rows: int | None = None
    """Rows that were sent and taken back, as far as it is known that they were sent."""
    timestamp_ms: int | None = None
    """The time that the log gave to records of the newest chunk that it gave one; None also when it gave none."""
    has_offset: bool | None = None
    """Whether the log itself said where each chunk is; else that was proven from its ends."""
    start_offset: int | None = None
    """The oldest offset that the partition kept at the newest append."""

    @property
    def has_timestamp(self) -> bool | None:
        """Whether the log gave records a time."""
        return None if self.attempts is None else self.timestamp_ms is not None

    def and_then(self, appended: Appended) -> "Appends":
        """The same with what one more append said; one without records, which closes a job, says nothing."""
        if appended.count == 0:
            return self
        return Appends(
            attempts=(self.attempts or 0) + appended.attempts,
            aborted_rows=(self.aborted_rows or 0) + appended.aborted_rows,
            timestamp_ms=self.timestamp_ms if appended.timestamp_ms is None else appended.timestamp_ms,
            has_offset=self.has_offset is not False and appended.has_offset,
            start_offset=appended.start_offset,
        )


NOTHING_SAID = Appends()
