"""A replicated, sharded key-value store over a log (the worked example of KIP-27): one partition is one shard.

Nodes share the shards, and no service stands beside the log: the log decides who leads,
and holds all that was acknowledged.
"""

from key_value_store.node import Node
from key_value_store.values import ANY, ShardStatus, Versioned
from spark_cas.core.errors import MayBeStaleError, NotLeaderError, UnknownOutcomeError, VersionMismatchError

__all__ = [
    "ANY",
    "MayBeStaleError",
    "Node",
    "NotLeaderError",
    "ShardStatus",
    "UnknownOutcomeError",
    "VersionMismatchError",
    "Versioned",
]
