"""What the tests of the store share: keys by shard, and nodes that ask whoever leads."""

import itertools
from pathlib import Path

from spark_cas.core.errors import NotLeaderError
from spark_cas.core.partitioner import partition_of_key
from spark_cas.kv import Node

SHARDS = 2
SECONDS = 60


def keys_of(shard, count, shards=SHARDS):
    """So many keys of one shard."""
    keys = (b"key-%d" % number for number in itertools.count())
    return list(itertools.islice((key for key in keys if partition_of_key(key, shards) == shard), count))


def node(log, folder, address="a", **more):
    """A node with a folder of its own."""
    return Node(log, address=address, folder=Path(folder, address), **more)


def asking(nodes, call, *arguments, **named):
    """Ask a node, by address, and then whoever it names, until one does it."""
    at = next(iter(nodes))
    for _ in range(100):
        try:
            return getattr(nodes[at], call)(*arguments, **named)
        except NotLeaderError as error:
            at = error.leader
    msg = "nobody leads"
    raise AssertionError(msg)
