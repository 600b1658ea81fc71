"""Which node is to begin with a shard that nobody leads yet: the same at every node."""

from collections.abc import Collection

import xxhash


def preferred_node(shard: int, nodes: Collection[str]) -> str:
    """The node that is to begin with a shard: rendezvous hashing, so that each has about as many.

    A node more or less changes the preference for those shards alone that it gets or had.
    """
    return max(nodes, key=lambda node: (xxhash.xxh3_64_intdigest(f"{shard}/{node}".encode()), node))
