"""How clients and nodes of the store speak: connections on this machine, and one answer to each request."""

import os
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from threading import Thread
from typing import Any, cast

Request = Mapping[str, Any]
"""What is asked: ``call``, the name of a method of `spark_cas.kv.Node`, and its arguments by name."""
Answer = Mapping[str, Any]
"""``result``, or what is known of an error: its ``kind``, what it ``told``, ``leader`` where it names one, and of a
mismatch the ``key`` and its ``actual`` version."""

_HOST = "127.0.0.1"
_WAITING = 1_000
"""As many as all sessions together: one more would wait in the system, past its time."""


class NotReachedError(Exception):
    """Nobody took the request: it has no effect."""


class NoAnswerError(Exception):
    """The node died, or did not answer in time: the request may have an effect, now or later."""


class Caller:
    """Asks nodes, one request at a time; the connection to each is kept until something is wrong with it."""

    def __init__(self) -> None:
        self._kept: dict[Path, Connection] = {}

    def call(self, node: Path, request: Request, seconds: float) -> Answer:
        """Ask the node that listens as this file says. Raises NotReachedError, NoAnswerError."""
        connection = self._kept.pop(node, None) or _connected(node)
        try:
            if connection.poll():  # it has ended since, so nobody takes this request
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
    """Answer requests, those of a connection in a thread, for as long as the process lives; the file says where."""
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
            except BaseException:  # noqa: BLE001 - told by the traceback
                # A defect of the store: the process ends with it, and the run tells.
                traceback.print_exc()
                os._exit(1)

    def accept() -> None:
        while True:
            Thread(target=serve, args=(listener.accept(),), daemon=True).start()

    Thread(target=accept, name="listen", daemon=True).start()
