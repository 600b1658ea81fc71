"""The stream on which Spark's JVM sends input to the task of this process."""

import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from io import BufferedReader, BufferedRWPair
from types import FrameType
from typing import Any

Stream = BufferedReader | BufferedRWPair


def stream_from_jvm() -> Stream | None:
    """Return the input stream of the task, or None if there is none.

    Spark has no API for this stream. It is a local variable of the functions that run a worker, so this searches the
    calling frames for a value of its type. In pyspark 4.2 and 4.3, the frames up to the worker's main function have
    no other value of this type.
    """
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - there is no other way
    while frame is not None:
        for found in frame.f_locals.values():
            if isinstance(found, Stream):
                return found
        frame = frame.f_back
    return None


def acknowledge(stream: Stream | None) -> None:
    """Acknowledge the data that the JVM has sent, without the delay of 40 ms on Linux.

    Spark 4.2 leaves Nagle's algorithm on (RFC 896). The JVM sends the function of a task, and holds the rows until
    the worker's system acknowledges it. The worker sends nothing before it receives rows, so the system delays this.

    If there is no stream, or the platform has no ``TCP_QUICKACK``, this does nothing.
    """
    quick = getattr(socket, "TCP_QUICKACK", None)
    if stream is None or quick is None:
        return
    with suppress(OSError):  # not a TCP socket, or not a socket
        connection = socket.socket(fileno=stream.fileno())
        try:
            connection.setsockopt(socket.IPPROTO_TCP, quick, 1)
        finally:
            connection.detach()


class Acknowledged:
    """Base class for the objects of a task: unpickling one acknowledges it, and the JVM sends the rows."""

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        acknowledge(stream_from_jvm())
