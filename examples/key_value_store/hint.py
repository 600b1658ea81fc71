"""Choose the first leader of a shard. Every node makes the same choice."""

from collections.abc import Collection

import xxhash


def preferred_node(shard: int, nodes: Collection[str]) -> str:
    """Return the node that leads a shard first, by rendezvous hashing.

    Each node gets about the same number of shards. If a node is added or removed, only its own shards change.
    """
    return max(nodes, key=lambda node: (xxhash.xxh3_64_intdigest(f"{shard}/{node}".encode()), node))
