"""Run one node as a process: a port, the node, and a clean shutdown."""

import signal
import socket
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import uvicorn

from key_value_store.http.app import app_of
from key_value_store.node import Node
from spark_cas import open_log
from spark_cas.log.open import AnySpec, answered_before

GRACE_SECONDS = 10
"""After a signal, running requests have this much time to end."""

_MOST_CONNECTIONS = 1000
_BACKLOG = 512


def tcp_listener(host: str, port: int) -> socket.socket:
    """Bind a port and listen on it; port 0 selects a free one. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


def serve(
    log: AnySpec,
    listener: socket.socket,
    *,
    address: str,
    folder: Path,
    nodes: Collection[str],
    ready: Callable[[int], None],
) -> None:
    """Run a node until SIGTERM or SIGINT. Then finish the running requests and close the node.

    When the node follows its shards, calls ``ready`` with their number. Raises the errors of `Node`.
    """
    with open_log(log) as opened:
        name, shards = opened.topic, opened.layout().partitions
    # From now on the node retries if the log cannot be reached.
    with Node(partial(open_log, answered_before(log)), address=address, folder=folder, nodes=nodes) as node:
        server = uvicorn.Server(
            uvicorn.Config(
                app_of(node, address, name),
                http="h11",
                loop="asyncio",
                ws="none",
                lifespan="off",
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=_MOST_CONNECTIONS,
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )

        def end(*_: object) -> None:
            server.should_exit = True

        # While the server runs, it uses its own handlers. After it has ended, it raises the signal again for these.
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, end)
        ready(shards)
        server.run(sockets=[listener])
