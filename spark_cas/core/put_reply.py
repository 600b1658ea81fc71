"""The read-back rule for put-if-absent: decide the outcome of a put from the response and the stored object."""

from enum import Enum
from typing import assert_never


class PutReply(Enum):
    """The response of a store to a put-if-absent request."""

    CREATED = "created"
    ALREADY_EXISTS = "already exists"
    """Ambiguous: another writer won, our own response was lost, or (S3's 409) nothing happened."""
    UNCLEAR = "unclear"
    """Transport error, timeout or 5xx: the store may have applied the put."""


class Existing(Enum):
    """The writer of the object that a read-back found under the name."""

    OURS = "the same write id"
    SAME_JOB = "another write of the same job"
    NEWER_LAYOUT = "a write with a newer layout epoch"
    OTHER = "another job"
    ABSENT = "nothing"
    UNREADABLE = "the read failed"


class PutVerdict(Enum):
    """The outcome of a put after the read-back."""

    APPENDED = "appended"
    RESOLVED = "appended, proven by reading back"
    FENCED = "fenced"
    LAYOUT_CHANGED = "layout changed"
    CONFLICT = "conflict"
    AGAIN = "put the same bytes again"


def judge_put(reply: PutReply, result: Existing) -> PutVerdict:
    """Decide the outcome of a put.

    Except for `PutReply.CREATED`, the response alone proves nothing. A store rejects a retried request because of the
    object that its first attempt created. So ``result`` is the object under the name, as read back.
    """
    if reply is PutReply.CREATED:
        return PutVerdict.APPENDED
    match result:
        case Existing.OURS:
            return PutVerdict.RESOLVED
        case Existing.SAME_JOB:
            return PutVerdict.FENCED
        case Existing.NEWER_LAYOUT:
            return PutVerdict.LAYOUT_CHANGED
        case Existing.OTHER:
            return PutVerdict.CONFLICT
        case Existing.ABSENT | Existing.UNREADABLE:
            return PutVerdict.AGAIN
    assert_never(result)
