"""Send one HTTP request and read the reply, within one deadline, on a new connection.

The server may close a reused connection at any time. The client could then not determine whether the server received
the request. A new connection delivers a complete request or none.
"""

import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPMessage
from typing import Any, cast

from key_value_store.http.access import Access
from key_value_store.http.wire import host_and_port

_MOST_REPLY_BYTES = 16 * 1024 * 1024


class NotSentError(Exception):
    """The server did not receive the complete request, so it did nothing."""


class NoReplyError(Exception):
    """The client sent the request but received no complete reply. The server may execute it, now or later."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply of a server."""

    status: int
    headers: HTTPMessage
    body: bytes


class _Bounded(socket.socket):
    """A socket with one deadline for all of its reads, even if the bytes arrive slowly."""

    deadline = 0.0

    def recv_into(self, *arguments: Any, **keywords: Any) -> int:  # noqa: ANN401 - passed through
        self.settimeout(_seconds_left(self.deadline))
        return super().recv_into(*arguments, **keywords)


class _BoundedTls(ssl.SSLSocket):
    """The same over TLS."""

    deadline = 0.0

    def recv_into(self, *arguments: Any, **keywords: Any) -> int:  # noqa: ANN401 - passed through
        self.settimeout(_seconds_left(self.deadline))
        return super().recv_into(*arguments, **keywords)


def exchange(
    address: str,
    method: str,
    path: str,
    *,
    deadline: float,
    body: bytes = b"",
    headers: Mapping[str, str],
    access: Access,
) -> Reply:
    """Send a request to the server at ``host:port``, and return its reply.

    Args:
        address: The address of the server.
        method: The HTTP method.
        path: The path and query.
        deadline: A time on the monotonic clock.
        body: The body.
        headers: The headers.
        access: The token and the TLS settings.

    Raises:
        NotSentError: The server did not receive the complete request.
        NoReplyError: No complete reply arrived.
    """
    parts = host_and_port(address)
    if parts is None:
        raise NotSentError("the address is not host:port")
    connection = HTTPConnection(*parts)
    try:
        try:
            connection.sock = _connected(parts, deadline, access.tls)
            connection.sock.settimeout(_seconds_left(deadline))
            connection.request(method, path, body, {**headers, **access.headers, "Connection": "close"})
        except (OSError, HTTPException) as error:
            raise NotSentError(_error_text(error)) from None
        try:
            response = connection.getresponse()
            if response.length is None:
                raise NoReplyError("the reply has no Content-Length, so it may be incomplete")
            if response.length > _MOST_REPLY_BYTES:
                raise NoReplyError(f"the reply has more than {_MOST_REPLY_BYTES} bytes")
            content = response.read()  # raises IncompleteRead if the reply is incomplete
        except (OSError, HTTPException) as error:
            raise NoReplyError(_error_text(error)) from None
        return Reply(response.status, response.headers, content)
    finally:
        connection.close()


def _connected(parts: tuple[str, int], deadline: float, tls: ssl.SSLContext | None) -> _Bounded | _BoundedTls:
    plain = socket.create_connection(parts, timeout=_seconds_left(deadline))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if tls is not None:
        plain.settimeout(_seconds_left(deadline))
        tls.sslsocket_class = _BoundedTls
        with plain:  # closes it after an error; otherwise the result owns the connection
            encrypted = cast("_BoundedTls", tls.wrap_socket(plain, server_hostname=parts[0]))
        encrypted.deadline = deadline
        return encrypted
    bounded = _Bounded(fileno=plain.detach())
    bounded.deadline = deadline
    return bounded


def _seconds_left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _error_text(error: BaseException) -> str:
    return str(error) or ("no reply in time" if isinstance(error, TimeoutError) else type(error).__name__)
