"""One HTTP request and its reply, within one deadline, on a connection of its own.

A connection that was used before may be closed by the server at any time, and then nobody knows whether it got the
request; a new one either gets it whole or not at all.
"""

import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPMessage
from typing import Any

from key_value_store.http.wire import host_and_port

_MOST_REPLY_BYTES = 16 * 1024 * 1024


class NotSentError(Exception):
    """The server did not get the whole request: it did nothing."""


class NoReplyError(Exception):
    """The request was sent, and no whole reply came: it may have been done, or may yet be."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered."""

    status: int
    headers: HTTPMessage
    body: bytes


class _Bounded(socket.socket):
    """A socket of which all reads together end at a deadline, however slowly bytes come."""

    deadline = 0.0

    def recv_into(self, *arguments: Any, **named: Any) -> int:  # noqa: ANN401 - handed on as they are
        self.settimeout(_left(self.deadline))
        return super().recv_into(*arguments, **named)


def exchange(
    address: str, method: str, path: str, *, deadline: float, body: bytes = b"", headers: Mapping[str, str]
) -> Reply:
    """Ask a server at ``host:port``; ``deadline`` is on the steady clock. Raises NotSentError, NoReplyError."""
    parts = host_and_port(address)
    if parts is None:
        raise NotSentError("its address is no host:port")
    connection = HTTPConnection(*parts)
    try:
        try:
            connection.sock = _connected(parts, deadline)
            connection.sock.settimeout(_left(deadline))
            connection.request(method, path, body, dict(headers) | {"Connection": "close"})
        except (OSError, HTTPException) as error:
            raise NotSentError(_told(error)) from None
        try:
            response = connection.getresponse()
            if response.length is None:
                raise NoReplyError("its reply does not say how long it is, so it may be cut off")
            if response.length > _MOST_REPLY_BYTES:
                raise NoReplyError(f"its reply is larger than {_MOST_REPLY_BYTES} bytes")
            found = response.read()  # IncompleteRead where it is cut off
        except (OSError, HTTPException) as error:
            raise NoReplyError(_told(error)) from None
        return Reply(response.status, response.headers, found)
    finally:
        connection.close()


def _connected(parts: tuple[str, int], deadline: float) -> _Bounded:
    plain = socket.create_connection(parts, timeout=_left(deadline))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    bounded = _Bounded(fileno=plain.detach())
    bounded.deadline = deadline
    return bounded


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _told(error: BaseException) -> str:
    return str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
