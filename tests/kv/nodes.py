"""Shared helpers of the store's tests: keys by shard, and requests that follow the leader."""

import itertools
from pathlib import Path

from key_value_store import Node
from key_value_store.errors import NotLeaderError
from spark_cas.core.partitioner import partition_of_key

SHARDS = 2
SECONDS = 60


def keys_of(shard, count, shards=SHARDS):
    """Return ``count`` keys of one shard."""
    keys = (b"key-%d" % number for number in itertools.count())
    return list(itertools.islice((key for key in keys if partition_of_key(key, shards) == shard), count))


def node(log, folder, address="a", **more):
    """Return a node with its own folder."""
    return Node(log, address=address, folder=Path(folder, address), **more)


def asking(nodes, call, *arguments, **named):
    """Send a request to a node, and then to the leader that it names, until one serves it."""
    at = next(iter(nodes))
    for _ in range(100):
        try:
            return getattr(nodes[at], call)(*arguments, **named)
        except NotLeaderError as error:
            at = error.leader
    msg = "no node leads"
    raise AssertionError(msg)
