"""The errors of the store, besides those of spark_cas. README.md has the action for each of them."""

from typing import Unpack

from spark_cas.core.errors import ConditionalLogError, Fields, RefusedError


class NotLeaderError(RefusedError, retriable=True):
    """Another node leads the shard, or none does."""

    kind = "NOT_LEADER"

    def __init__(self, message: str, leader: str | None = None, **fields: Unpack[Fields]) -> None:
        super().__init__(message, **fields)
        self.leader = leader
        """The presumed address of the leader; None if it is not known."""


class VersionMismatchError(RefusedError):
    """A key has another version than a write expected."""

    kind = "VERSION_MISMATCH"

    def __init__(self, message: str, key: bytes = b"", actual: int | None = None, **fields: Unpack[Fields]) -> None:
        super().__init__(message, **fields)
        self.key = key
        self.actual = actual
        """The version that the key has; None when it is absent."""


class MayBeStaleError(ConditionalLogError, retriable=True):
    """The node cannot prove that a value is the newest."""

    kind = "MAY_BE_STALE"
