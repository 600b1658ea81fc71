"""Requests from clients to nodes of the store: local connections, and one response to each request."""

import os
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from threading import Thread
from typing import Any, cast

Request = Mapping[str, Any]
"""A request: ``call``, the name of a method of `key_value_store.Node`, and its arguments by name."""
Answer = Mapping[str, Any]
"""A response: ``result``, or the fields of an error. These are ``kind``, ``told`` (its message), ``leader`` if it
names one, and for a mismatch the ``key`` and its ``actual`` version."""

_HOST = "127.0.0.1"
_WAITING = 1_000
"""The backlog covers all sessions together: a connection beyond it would wait in the operating system for too
long."""


class NotReachedError(Exception):
    """No node received the request: it has no effect."""


class NoAnswerError(Exception):
    """The node exited or did not respond before the timeout, so the request may take effect, now or later."""


class Caller:
    """Send requests to nodes, one at a time. Keep the connection to each node until it fails."""

    def __init__(self) -> None:
        self._kept: dict[Path, Connection] = {}

    def call(self, node: Path, request: Request, seconds: float) -> Answer:
        """Send a request to the node whose port is in this file. Raises NotReachedError, NoAnswerError."""
        connection = self._kept.pop(node, None) or _connected(node)
        try:
            if connection.poll():  # the connection has ended, so no node receives this request
                connection.close()
                connection = _connected(node)
            connection.send(request)
            if connection.poll(seconds):
                answer = cast("Answer", connection.recv())
                self._kept[node] = connection
                return answer
        except (OSError, EOFError):
            pass
        connection.close()
        raise NoAnswerError


def _connected(node: Path) -> Connection:
    try:
        return Client((_HOST, int(node.read_text())))
    except (OSError, ValueError):
        raise NotReachedError from None


def listen(node: Path, answer: Callable[[Request], Answer]) -> None:
    """Serve requests while the process lives, with a thread for each connection, and write the port to the file."""
    listener = Listener((_HOST, 0), backlog=_WAITING)
    new = node.with_suffix(".new")
    new.write_text(str(listener.address[1]))
    new.replace(node)

    def serve(connection: Any) -> None:
        with connection:
            try:
                while True:
                    connection.send(answer(connection.recv()))
            except (OSError, EOFError):
                return
            except BaseException:  # noqa: BLE001 - the traceback reports it
                # This is a defect of the store. The process exits, and the run reports it.
                traceback.print_exc()
                os._exit(1)

    def accept() -> None:
        while True:
            Thread(target=serve, args=(listener.accept(),), daemon=True).start()

    Thread(target=accept, name="listen", daemon=True).start()
