"""The keys that clients meet at, and who is there."""

import itertools
import time

from spark_cas.core.partitioner import partition_of_key

NODES = ("n1", "n2")
WRITERS = ("c1", "c2")
READERS = ("r1",)
"""They only read, without a rest: a leader that is kept busy by reads looks at the log for their sake alone."""
SHARDS = 2
PAIRS = 2
"""So many pairs of keys are in use at a time for each session that a client has. The keys of a pair are of different
shards, and of one transaction."""
_GENERATION_SECONDS = 2.0


def pair_now(chance: float, sessions: int) -> tuple[str, str]:
    """A pair that all clients choose from at this moment, by a number below 1; each client has so many sessions.

    Each is in use for a short time, by few at once: Porcupine's search grows with the operations on a key.
    """
    return pair(int(time.monotonic() / _GENERATION_SECONDS), int(chance * PAIRS * sessions))


def pair(generation: int, number: int) -> tuple[str, str]:
    """The keys of a pair, one of each of the first two shards."""
    names = (f"{generation}-{number}-{at}" for at in itertools.count())
    first = next(names)
    shard = partition_of_key(first.encode(), SHARDS)
    second = next(each for each in names if partition_of_key(each.encode(), SHARDS) != shard)
    return (first, second) if shard == 0 else (second, first)
