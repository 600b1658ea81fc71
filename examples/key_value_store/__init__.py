"""A replicated, sharded key-value store over a log: the worked example of KIP-27.

Each partition of the log is one shard, and the nodes share the shards. The store needs no service besides the log.
The log determines the leader of each shard and contains all acknowledged writes.
"""

from key_value_store.errors import MayBeStaleError, NotLeaderError, VersionMismatchError
from key_value_store.node import Node
from key_value_store.values import ANY, ShardStatus, Versioned
from spark_cas.core.errors import UnknownOutcomeError

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
