"""Which node is to begin with a shard that nobody leads yet, and where a key belongs: both the same at every node."""

import struct
from collections.abc import Collection

import xxhash

_SEED = 0x9747B28C
_M = 0x5BD1E995
_UINT32 = 0xFFFFFFFF


def preferred_node(shard: int, nodes: Collection[str]) -> str:
    """The node that is to begin with a shard: rendezvous hashing, so that each has about as many.

    A node more or less changes the preference for those shards alone that it gets or had.
    """
    return max(nodes, key=lambda node: (xxhash.xxh3_64_intdigest(f"{shard}/{node}".encode()), node))


def shard_of(key: bytes, shards: int) -> int:
    """The shard of one key: Kafka's murmur2, as `spark_cas.core.partitioner` computes it for columns of keys."""
    words = len(key) // 4
    state = (_SEED ^ len(key)) & _UINT32
    for word in struct.unpack_from(f"<{words}I", key):
        mixed = word * _M & _UINT32
        state = (state * _M & _UINT32) ^ ((mixed ^ mixed >> 24) * _M & _UINT32)
    rest = key[4 * words :]
    if rest:
        state = (state ^ int.from_bytes(rest, "little")) * _M & _UINT32
    state = (state ^ state >> 13) * _M & _UINT32
    return ((state ^ state >> 15) & 0x7FFFFFFF) % shards
