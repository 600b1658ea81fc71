"""How clients and nodes of the store speak: a connection on this machine for each request, and one answer."""

import os
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Client, Listener
from pathlib import Path
from threading import Thread
from typing import Any, cast

Request = Mapping[str, Any]
"""What is asked: ``call``, the name of a method of `spark_cas.kv.Node`, and its arguments by name."""
Answer = Mapping[str, Any]
"""``result``, or what is known of an error: its ``kind``, what it ``told``, and ``leader`` where it names one."""

_HOST = "127.0.0.1"
_WAITING = 64


class NotReachedError(Exception):
    """Nobody took the request: it has no effect."""


class NoAnswerError(Exception):
    """The node died, or did not answer in time: the request may have an effect, now or later."""


def call(node: Path, request: Request, seconds: float) -> Answer:
    """Ask the node that listens as this file says. Raises NotReachedError, NoAnswerError."""
    try:
        connection = Client((_HOST, int(node.read_text())))
    except (OSError, ValueError):
        raise NotReachedError from None
    with connection:
        try:
            connection.send(request)
            if connection.poll(seconds):
                return cast("Answer", connection.recv())
        except (OSError, EOFError):
            pass
        raise NoAnswerError


def listen(node: Path, answer: Callable[[Request], Answer]) -> None:
    """Answer requests, each in a thread of its own, for as long as the process lives; the file says where."""
    listener = Listener((_HOST, 0), backlog=_WAITING)
    new = node.with_suffix(".new")
    new.write_text(str(listener.address[1]))
    new.replace(node)

    def serve(connection: Any) -> None:
        with connection:
            try:
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
