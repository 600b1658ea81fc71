"""The shared keys of the clients, and the names of nodes and clients."""

import itertools
import time

from spark_cas.core.partitioner import partition_of_key

NODES = ("n1", "n2")
WRITERS = ("c1", "c2")
READERS = ("r1",)
"""Clients that only read, without pauses: a leader with many reads then reads the log only to serve them."""
SHARDS = 2
PAIRS = 2
"""The number of key pairs in use at a time for each session of a client. The keys of a pair are in different shards,
and one transaction may write both."""
_GENERATION_SECONDS = 2.0


def pair_now(chance: float, sessions: int) -> tuple[str, str]:
    """Return one of the pairs that all clients use at this moment.

    ``chance`` is at least 0 and below 1; ``sessions`` is the number per client.

    Each pair is in use for a short time and by few sessions at once, because Porcupine's search grows with the
    operations on a key.
    """
    return pair(int(time.monotonic() / _GENERATION_SECONDS), int(chance * PAIRS * sessions))


def pair(generation: int, number: int) -> tuple[str, str]:
    """Return the keys of a pair, one in each of the first two shards."""
    names = (f"{generation}-{number}-{at}" for at in itertools.count())
    first = next(names)
    shard = partition_of_key(first.encode(), SHARDS)
    second = next(each for each in names if partition_of_key(each.encode(), SHARDS) != shard)
    return (first, second) if shard == 0 else (second, first)
