"""The stream on which Spark's JVM sends its input to the task that this process serves."""

import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from io import BufferedReader, BufferedRWPair
from types import FrameType
from typing import Any

Stream = BufferedReader | BufferedRWPair


def stream_from_jvm() -> Stream | None:
    """The stream of the task, None where none is found.

    It is a variable of the functions that run a worker, which Spark shows nobody, and is told by its type: in pyspark
    4.2 and 4.3 no other such stream is between a worker's main function and here.
    """
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - there is no other way
    while frame is not None:
        for found in frame.f_locals.values():
            if isinstance(found, Stream):
                return found
        frame = frame.f_back
    return None


def acknowledge(stream: Stream | None) -> None:
    """Tell the JVM that what it sent has come, where Linux would do so 40 ms later.

    Spark (4.2) leaves Nagle's algorithm on (RFC 896): the JVM sends a task's function, and keeps the rows back until
    that is acknowledged. The worker has nothing to answer before it has rows, so its system takes its time.
    """
    quick = getattr(socket, "TCP_QUICKACK", None)
    if stream is None or quick is None:
        return
    with suppress(OSError):  # it is no socket of TCP, or none at all
        connection = socket.socket(fileno=stream.fileno())
        try:
            connection.setsockopt(socket.IPPROTO_TCP, quick, 1)
        finally:
            connection.detach()


class Acknowledged:
    """What a task works with: once it is unpickled, the JVM is to send what that works on."""

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        acknowledge(stream_from_jvm())
