"""What an attempt to append can come to: a closed union of values, and the rules that choose among them.

Every outcome but `Appended` and `Unknown` is a definite refusal: nothing of the attempt is visible, now
or later. A failure counts as definite only when it is proven; all else is `Unknown`.
"""

from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from spark_cas.core.offsets import Bounds, OffsetRange


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


def check_expected(expected: int | None, bounds: Bounds, next_record: int | None) -> Conflict | Truncated | None:
    """Decide whether an expected offset matches a partition; None when it does.

    It matches when no committed record has an offset >= ``expected`` and ``expected <= end_offset``.
    ``next_record`` is the offset of the first committed record at or after ``expected``, None when there
    is none: on a log with gaps a claim below the end still matches while the gap holds no record.
    ``expected`` None asks for no check (KIP-27's -1).
    """
    if expected is None:
        return None
    if expected > bounds.end_offset:
        return Truncated(expected, bounds.end_offset)
    if next_record is not None or expected < bounds.start_offset:
        return Conflict(expected, bounds.end_offset, bounds.start_offset)
    return None


def says_lost(refusal: Refusal | None) -> bool:
    """Whether a refusal says that the log lost records: to be said only after a second reading."""
    return isinstance(refusal, Truncated) or (isinstance(refusal, RowConflict) and refusal.truncated)


class PutReply(Enum):
    """What a store said to a put that must not overwrite."""

    CREATED = "created"
    ALREADY_EXISTS = "already exists"
    """Three things at once: somebody won, our own reply was lost, or (S3's 409) nothing happened."""
    UNCLEAR = "unclear"
    """Transport errors, time-outs, 5xx: it may or may not have been applied."""


class Found(Enum):
    """Whose object a read-back found under the name."""

    OURS = "the same write id"
    SAME_JOB = "another write of the same job"
    NEWER_LAYOUT = "a write with a newer layout epoch"
    OTHER = "another job"
    ABSENT = "nothing"
    UNREADABLE = "the read failed"


class PutVerdict(Enum):
    """What a put came to, once read back."""

    APPENDED = "appended"
    RESOLVED = "appended, proven by reading back"
    FENCED = "fenced"
    LAYOUT_CHANGED = "layout changed"
    CONFLICT = "conflict"
    AGAIN = "put the same bytes again"


def judge_put(reply: PutReply, found: Found) -> PutVerdict:
    """Decide what a put came to from the store's reply and, unless it was clear, what the name now holds.

    The read-back rule: a store's refusal says nothing until the object under the name was read, because
    a retried request is refused by the very object that its first try created.
    """
    if reply is PutReply.CREATED:
        return PutVerdict.APPENDED
    match found:
        case Found.OURS:
            return PutVerdict.RESOLVED
        case Found.SAME_JOB:
            return PutVerdict.FENCED
        case Found.NEWER_LAYOUT:
            return PutVerdict.LAYOUT_CHANGED
        case Found.OTHER:
            return PutVerdict.CONFLICT
        case Found.ABSENT | Found.UNREADABLE:
            return PutVerdict.AGAIN
    assert_never(found)
