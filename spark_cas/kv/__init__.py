"""A replicated, sharded key-value store over a log (the worked example of KIP-27): one partition is one shard.

Nodes share the shards, and no service stands beside the log: the log decides who leads,
and holds all that was acknowledged.
"""

from spark_cas.core.errors import MayBeStaleError, NotLeaderError, UnknownOutcomeError, VersionMismatchError
from spark_cas.kv.node import Node
from spark_cas.kv.values import ANY, ShardStatus, Versioned

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
