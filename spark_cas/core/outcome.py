"""What an attempt to append can come to: a closed union of values.

Every outcome but `Appended` and `Unknown` is a definite refusal: nothing of the attempt is visible, now
or later. A failure counts as definite only when it is proven; all else is `Unknown`.
"""

from dataclasses import dataclass

from spark_cas.core.offsets import OffsetRange


@dataclass(frozen=True, slots=True)
class Appended:
    """The chunk is committed at ``range``; the next append expects ``range.end_offset``."""

    range: OffsetRange
    count: int
    """Records appended. On a log with gaps ``len(range)`` may be larger."""
    timestamp_ms: int | None
    """The time that the log gave to records without one, or to all; None when it gave none."""
    start_offset: int
    """Oldest offset that the partition still keeps (KIP-192: tells retention apart from loss)."""
    has_offset: bool
    """Whether the log itself said where the records are (KIP-192); else that was proven from its ends."""
    resolved: bool
    """The reply was lost; that the chunk is there was proven from the log."""
    attempts: int = 1
    """How often it was tried to append them: more than once tells of retries."""
    aborted_rows: int = 0
    """Rows that tries before this one sent and took back: no reader of committed records ever sees them."""

    @property
    def has_timestamp(self) -> bool:
        """Whether the log gave records a time (KIP-192)."""
        return self.timestamp_ms is not None


@dataclass(frozen=True, slots=True)
class Conflict:
    """Somebody else's record is at or after the expected offset: bootstrap again from what was expected."""

    expected: int
    """The writer's claim."""
    actual: int
    """The partition's ``end_offset``, which a new claim would have to name."""
    start_offset: int
    """Above ``expected``: the records in between were also trimmed, so they cannot be read any more."""


@dataclass(frozen=True, slots=True)
class RowConflict:
    """A row's own claim does not hold for the offset that it would get: number the rows anew from what is there."""

    row: int
    """The first such row, counted from 0 in the job's rows of the partition."""
    expected: int
    """The row's claim."""
    actual: int
    """The offset that the row would get."""
    truncated: bool
    """Whether the claim lies past the end and no row before it shows that the log still has what was seen."""


@dataclass(frozen=True, slots=True)
class KeyConflict:
    """A row's claim about its key does not hold: read the key again from what was expected."""

    row: int
    """The first such row, counted from 0 in the job's rows of the partition."""
    key: str
    """Its key, to be read by people: long ones are cut."""
    expected: int
    """The row's claim."""
    actual: int | None
    """Where the newest record of the key lies; None when it was not found, but may have been removed since."""
    end_offset: int
    """Up to here the log was looked through."""


@dataclass(frozen=True, slots=True)
class Truncated:
    """The log is shorter than what the writer has seen: acknowledged records are gone. Stop."""

    expected: int
    actual: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """A newer writer of the same job claimed the partition. Stop; never claim again in a loop."""

    by: str | None
    """The task that did, where the backend can tell."""


@dataclass(frozen=True, slots=True)
class ProgressLost:
    """The plan of the job is known, its progress is gone, and no claim can decide. A person must."""

    job: str


@dataclass(frozen=True, slots=True)
class LayoutChanged:
    """The partition count moved (KIP-253): plan again. Both values are layout epochs."""

    planned: int
    actual: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """The reply was lost and could not be resolved in time: claim again and read the ledger first."""

    cause: str


Refusal = Conflict | RowConflict | KeyConflict | Truncated | Fenced | ProgressLost | LayoutChanged
"""A definite refusal: nothing of the attempt is visible, now or later."""

Outcome = Appended | Refusal | Unknown


def says_lost(refusal: Refusal | None) -> bool:
    """Whether a refusal says that the log lost records: to be said only after a second reading."""
    return isinstance(refusal, Truncated) or (isinstance(refusal, RowConflict) and refusal.truncated)
