"""What a put that must not overwrite came to: the read-back rule of stores that put if absent."""

from enum import Enum
from typing import assert_never


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
