"""The values that the store returns: keys with versions, and the status of a shard."""

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal


class _Anything(Enum):
    ANY = "any"


ANY: Final = _Anything.ANY
"""A write accepts any version of its key."""

Expected = int | None | Literal[_Anything.ANY]
"""The version that a write expects: the offset of the key's record, None for an absent key, or `ANY`."""


@dataclass(frozen=True, slots=True)
class Versioned:
    """The value and version of a key."""

    value: bytes | None
    """None if the key is absent."""
    version: int | None
    """The offset of the key's record in its shard (KIP-27), which only increases; None if the key is absent."""


ABSENT: Final = Versioned(None, None)
"""The value and version of an absent key."""


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """The status of one shard at one node."""

    shard: int
    """The partition of the log."""
    leads: bool
    """Whether this node leads the shard, as far as it knows."""
    leader: str | None
    """The address of the leader, as far as the node knows. It is a hint and may be wrong."""
    upcoming_offset: int
    """The node has applied all records below this offset."""
    end_offset: int
    """The end offset of the partition when the node last read it."""
    writes: int
    """The number of acknowledged keys written since the node was opened."""
    refused: int
    """The number of rejected writes since then: not the leader, a version mismatch, or a failed log."""
    unknown: int
    """The number of writes with an unknown outcome."""
    error: str | None
    """The error of the last failed attempt to follow or lead the shard; None after a success."""

    @property
    def lag(self) -> int:
        """The number of offsets that the node has not applied yet."""
        return max(0, self.end_offset - self.upcoming_offset)
