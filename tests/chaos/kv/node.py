"""A node of the store under chaos. Its history has one operation, ``serve``, which ends with the process.

``python -m tests.chaos.kv.node WORLD NAME``; it serves until it is killed.
"""

import sys
import time
from functools import partial
from pathlib import Path

from key_value_store import Node, Versioned, shard
from key_value_store.errors import VersionMismatchError
from spark_cas.core.errors import ConditionalLogError, StorageError
from tests.chaos.kv.calling import Answer, Request, listen
from tests.chaos.kv.keys import NODES
from tests.chaos.world import World
from tests.history.recorder import Recorder

_READ_SECONDS = 0.2
_SELDOM_SECONDS = 2.0
"""The poll interval of nodes, so long that a demoted leader receives requests before it knows of its demotion. The
guarantees of the store do not depend on earlier polls."""


def answer(node: Node, request: Request) -> Answer:
    """Execute a request. An exception that is not an error of spark_cas is a defect and is raised."""
    arguments = dict(request)
    try:
        result = getattr(node, arguments.pop("call"))(**arguments)
    except ConditionalLogError as error:
        told = {"kind": str(error.kind), "told": error.message, "leader": getattr(error, "leader", None)}
        if isinstance(error, VersionMismatchError):
            told |= {"key": error.key.decode(), "actual": error.actual}
        return told
    return {"result": [result.value, result.version] if isinstance(result, Versioned) else result}


def opened(world: World, name: str) -> Node:
    """Return the node as soon as the log can be read."""
    while True:
        try:
            opens = partial(world.open, name)
            return Node(opens, address=name, folder=world.folder / "nodes" / name, nodes=NODES)
        except StorageError:
            time.sleep(_READ_SECONDS)


def main(folder: str, name: str) -> None:
    """Serve until the process that started this one exits."""
    sys.setswitchinterval(0.001)
    shard._POLL_SECONDS = _SELDOM_SECONDS
    world = World.read(Path(folder))
    orphaned = world.orphaned()
    with Recorder(world.history / f"{name}.jsonl", name) as recorder, opened(world, name) as node:
        recorder.start("serve", {})
        listen(world.folder / f"{name}.port", lambda request: answer(node, request))
        while not orphaned():
            time.sleep(_READ_SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:])
