"""What the store takes and gives: keys with versions, and how a shard stands."""

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal


class _Anything(Enum):
    ANY = "any"


ANY: Final = _Anything.ANY
"""Of a write: whatever version its key has."""

Expected = int | None | Literal[_Anything.ANY]
"""The version that a key has to have: the offset of its record, None for an absent key, `ANY` for no matter."""


@dataclass(frozen=True, slots=True)
class Versioned:
    """What a key holds."""

    value: bytes | None
    """None when the key is absent."""
    version: int | None
    """The offset of the key's record in its shard (KIP-27), which only ever rises; None when the key is absent."""


ABSENT: Final = Versioned(None, None)
"""What a key holds that is not there."""


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """How one shard stands at one node."""

    shard: int
    """The partition of the log."""
    leads: bool
    """Whether this node leads it, as far as it knows."""
    leader: str | None
    """The address of the node that leads it, as far as is known: a hint, which may be wrong."""
    upcoming_offset: int
    """Up to here the node has applied the log, exclusive."""
    end_offset: int
    """The end of the partition that the node saw last."""
    writes: int
    """Keys written since the node was opened, as far as acknowledged."""
    refused: int
    """Writes that were definitely refused since then: not the leader, another version, a log that fails."""
    unknown: int
    """Writes of which it is not known whether they are in the log."""
    error: str | None
    """Why the node cannot follow the shard now, or could not lead it the last time, as the text of an error."""

    @property
    def lag(self) -> int:
        """Offsets that the node has yet to apply."""
        return max(0, self.end_offset - self.upcoming_offset)
