"""Run one node as a process: a port, the node, and a clean shutdown."""

import asyncio
import signal
import socket
import ssl
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from key_value_store.http.access import Access
from key_value_store.http.app import app_of
from key_value_store.node import Node
from spark_cas import open_log
from spark_cas.log.open import AnySpec

GRACE_SECONDS = 10
"""After a signal, running requests have this much time to end."""

HEADER_SECONDS = 10.0
"""A client must send the headers of a request within this time after the connection, or after their first byte."""

_MOST_CONNECTIONS = 1000
_BACKLOG = 512


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection if the headers of a request are not complete in time."""

    _headers_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._headers_timer = self.loop.call_later(HEADER_SECONDS, transport.close)

    def data_received(self, data: bytes) -> None:
        if self._headers_timer is None and self.conn.their_state is h11.IDLE:
            self._headers_timer = self.loop.call_later(HEADER_SECONDS, self.transport.close)
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._cancel_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        super().connection_lost(exc)

    def _cancel_timer(self) -> None:
        if self._headers_timer is not None:
            self._headers_timer.cancel()
            self._headers_timer = None


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
    access: Access,
    tls: ssl.SSLContext | None,
    ready: Callable[[int], None],
) -> None:
    """Run a node until SIGTERM or SIGINT. Then finish the running requests and close the node.

    Args:
        log: The log.
        listener: The socket that accepts connections.
        address: The address of the node for clients and other nodes.
        folder: The folder of the snapshots.
        nodes: The addresses of all nodes.
        access: The token of clients and nodes, and the TLS settings to reach other nodes.
        tls: The TLS settings of this node; None to serve without TLS.
        ready: Called with the number of shards when the node follows them.

    Raises the errors of `Node`.
    """
    with open_log(log) as opened:
        name, shards = opened.topic, opened.layout().partitions
    # From now on the node retries if the log cannot be reached.
    with Node(partial(open_log, log.as_reached()), address=address, folder=folder, nodes=nodes) as node:
        config = uvicorn.Config(
            app_of(node, address, name, nodes, access),
            http=BoundedProtocol,
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
        config.load()
        config.ssl = tls
        server = uvicorn.Server(config)

        def end(*_: object) -> None:
            server.should_exit = True

        # While the server runs, it uses its own handlers. After it has ended, it raises the signal again for these.
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, end)
        ready(shards)
        server.run(sockets=[listener])
