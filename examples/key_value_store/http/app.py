"""The HTTP API of one node, as an ASGI application."""

import asyncio
import ipaddress
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from typing import TypeVar
from urllib.parse import urlsplit

import anyio
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from key_value_store.http.access import Access
from key_value_store.http.redirecting import Redirecting, RedirectTo
from key_value_store.http.replies import error_reply, reply_of
from key_value_store.http.wire import (
    ABSENT,
    HEALTH,
    KEYS,
    LINEARIZABLE,
    MOST_BODY_BYTES,
    READ_HEADER,
    STALE,
    STATUS,
    TRANSACTIONS,
    RefusedRequestError,
    Transaction,
    bad_request,
    expected_of,
    host_and_port,
    key_of_path,
    tag_of,
    transaction_of,
    version_of_tag,
    versions_json,
)
from key_value_store.node import Node
from key_value_store.records import LEADER_KEY

REQUEST_SECONDS = 10.0
MOST_REQUEST_SECONDS = 60.0
MOST_AT_ONCE = 128
"""The maximum number of requests that wait for the log, because each one uses a thread. The server rejects others."""

MOST_BODIES_BYTES = 8 * MOST_BODY_BYTES
"""The maximum memory of all bodies. The server rejects a request whose body could exceed it before it reads it."""

_PAGE_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"
_PAGE_POLICY += "; frame-ancestors 'none'"
_MOST_DIGITS = 18
_LOG = logging.getLogger("spark_cas")

Result = TypeVar("Result")
Endpoint = Callable[[Request], Awaitable[Response]]


class _AnyKey(Convertor[str]):
    """Match the remaining path, including line breaks, at which the framework's converter stops."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("anykey", _AnyKey())


def app_of(
    node: Node, address: str, log: str, nodes: Collection[str] = (), access: Access | None = None
) -> Starlette:
    """Return the application of a node.

    Args:
        node: The node.
        address: Its address for clients and other nodes.
        log: The name of the log in the status.
        nodes: The addresses to which the node may send clients; if there are none, any.
        access: The token of each request, and the TLS settings to reach other nodes.
    """
    api = _Api(node, address, log, nodes, access or Access())
    routes = [
        Route("/", api.page, methods=["GET"]),
        Route(HEALTH, api.health, methods=["GET"]),
        Route(STATUS, api.status, methods=["GET"]),
        Route(KEYS + "{key:anykey}", api.key, methods=["GET", "PUT", "DELETE"]),
        Route(TRANSACTIONS, api.transactions, methods=["POST"]),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _http_error})


def _guarded(endpoint: Callable[["_Api", Request], Awaitable[Response]]) -> Callable[..., Awaitable[Response]]:
    """Wrap an endpoint: reject requests without the token or for another host, and turn exceptions into replies."""

    async def guarded(api: "_Api", request: Request) -> Response:
        try:
            api.require_host(request)
            api.require_token(request)
            return await endpoint(api, request)
        except Exception as error:  # noqa: BLE001 - the client gets a reply to every error
            reply = reply_of(error)
            if reply.status_code == HTTPStatus.INTERNAL_SERVER_ERROR:
                _LOG.error("%s %s", request.method, request.url.path, exc_info=error)
            return reply

    return guarded


class _Api:
    """The endpoints of one node."""

    def __init__(self, node: Node, address: str, log: str, nodes: Collection[str], access: Access) -> None:
        self._node = node
        self._address = address
        self._log = log
        self._access = access
        self._bodies_bytes = 0
        self._redirecting = Redirecting(node, address, nodes, access)
        self._limiter = anyio.CapacityLimiter(MOST_AT_ONCE)
        parts = host_and_port(address)
        self._hosts = {"localhost", parts[0].lower() if parts else ""}
        self._page = files("key_value_store.http").joinpath("status.html").read_text(encoding="utf-8")

    def require_host(self, request: Request) -> None:
        """Reject a request for another host name, because another site may have resolved its name to this address."""
        # The raw header: if the name is malformed, the framework replaces it with the address of the server.
        try:
            host = urlsplit("//" + request.headers.get("host", "")).hostname or ""
        except ValueError:
            host = ""
        if host not in self._hosts and not _is_ip(host):
            raise RefusedRequestError(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"the request is for another host, not for node {self._address}. Use this address or an IP address.",
            )

    def require_token(self, request: Request) -> None:
        """Reject a request without the token of the nodes."""
        if not self._access.permits(request.headers.get("authorization")):
            raise RefusedRequestError(
                HTTPStatus.UNAUTHORIZED,
                "the request has no valid token. Nothing was written. Send Authorization: Bearer TOKEN, or in a "
                "browser the token as the password.",
                # Chromium does not prompt for the password if the header names a second scheme.
                {"WWW-Authenticate": 'Basic realm="key_value_store"'},
            )

    @contextmanager
    def _room_for_body(self, request: Request) -> Iterator[None]:
        """Reserve memory for the body of a request. Raises RefusedRequestError if there is too little."""
        size = min(_declared_bytes(request, MOST_BODY_BYTES), MOST_BODY_BYTES)
        if self._bodies_bytes + size > MOST_BODIES_BYTES:
            raise RefusedRequestError(
                HTTPStatus.SERVICE_UNAVAILABLE, "too many large requests. Nothing was written. Retry later."
            )
        self._bodies_bytes += size
        try:
            yield
        finally:
            self._bodies_bytes -= size

    @_guarded
    async def page(self, _: Request) -> Response:
        return HTMLResponse(
            self._page, headers={"Content-Security-Policy": _PAGE_POLICY, "Cache-Control": "no-cache"}
        )

    @_guarded
    async def health(self, _: Request) -> Response:
        failing = [each.shard for each in self._node.status() if each.error is not None]
        return _json({"node": self._address, "failing": failing})

    @_guarded
    async def status(self, _: Request) -> Response:
        shards = [asdict(each) | {"lag": each.lag} for each in self._node.status()]
        return _json({"node": self._address, "log": self._log, "shards": shards})

    @_guarded
    async def key(self, request: Request) -> Response:
        key = key_of_path(request.scope["raw_path"])
        if request.method in ("GET", "HEAD"):
            return await self._get(request, key)
        headers = request.headers
        expected = expected_of(headers.get("if-match"), headers.get("if-none-match"))
        _reject_reserved(key)
        deadline = _deadline(request)
        if request.method == "DELETE":
            delete = partial(self._node.delete, key, expected_version=expected)
            done = await self._execute(key, lambda left: delete(timeout=left), deadline)
        else:
            with self._room_for_body(request):
                put = partial(self._node.put, key, await _body(request, deadline), expected_version=expected)
                done = await self._execute(key, lambda left: put(timeout=left), deadline)
        if isinstance(done, RedirectTo):
            return _redirect(done, request)
        if request.method == "DELETE":
            return _json({"offset": done})
        status = HTTPStatus.CREATED if expected is None else HTTPStatus.OK
        return _json({"version": done}, status, {"ETag": tag_of(done)})

    async def _get(self, request: Request, key: bytes) -> Response:
        stale = _flag(request, "stale")
        read = partial(self._node.get, key, stale=stale)
        result = await self._execute(key, lambda left: read(timeout=left), _deadline(request))
        if isinstance(result, RedirectTo):
            return _redirect(result, request)
        read_headers = {READ_HEADER: STALE if stale else LINEARIZABLE, "Cache-Control": "no-cache"}
        if result.value is None or result.version is None:
            return error_reply(HTTPStatus.NOT_FOUND, ABSENT, "the key is absent.", read_headers, version=None)
        headers = read_headers | {"ETag": tag_of(result.version), "X-Content-Type-Options": "nosniff"}
        if version_of_tag(request.headers.get("if-none-match", "")) == result.version:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(result.value, headers=headers, media_type="application/octet-stream")

    @_guarded
    async def transactions(self, request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            # Browsers let pages of other sites send some other content types without a preflight request.
            raise RefusedRequestError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "expected Content-Type: application/json. Nothing was written."
            )
        deadline = _deadline(request)
        with self._room_for_body(request):
            return await self._transact(request, transaction_of(await _body(request, deadline)), deadline)

    async def _transact(self, request: Request, transaction: Transaction, deadline: float) -> Response:
        if not transaction.writes:
            raise bad_request("expected at least one write")
        for each in transaction.writes:
            _reject_reserved(each)
        call = partial(self._node.transact, transaction.writes, transaction.expected)
        done = await self._execute(next(iter(transaction.writes)), lambda left: call(timeout=left), deadline)
        return _redirect(done, request) if isinstance(done, RedirectTo) else _json(versions_json(done))

    async def _execute(self, key: bytes, call: Callable[[float], Result], deadline: float) -> Result | RedirectTo:
        """Run the call in a thread. If the client disconnects, the call still completes."""
        if self._limiter.available_tokens < 1:
            raise RefusedRequestError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{MOST_AT_ONCE} requests already wait for the log. Nothing was written. Retry later.",
            )
        task = partial(self._redirecting.execute, key, call, max(0.0, deadline - time.monotonic()))
        return await anyio.to_thread.run_sync(task, abandon_on_cancel=True, limiter=self._limiter)


async def _http_error(request: Request, error: Exception) -> Response:
    """Reply to a request that the framework rejects: an unknown path or method."""
    if not isinstance(error, HTTPException):
        raise error
    status = HTTPStatus(error.status_code)
    message = f"{status.phrase}: this path does not support {request.method}. "
    message += "See examples/key_value_store/README.md for the API."
    return error_reply(status, status.name, message, error.headers)


def _reject_reserved(key: bytes) -> None:
    if key == LEADER_KEY:
        raise bad_request("this key is reserved: it names leaders")


def _deadline(request: Request) -> float:
    """Return the deadline of the request on the monotonic clock: ``timeout`` seconds from now."""
    text = request.query_params.get("timeout", str(REQUEST_SECONDS))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= MOST_REQUEST_SECONDS:
        raise bad_request(f"expected timeout=SECONDS, more than 0 and at most {MOST_REQUEST_SECONDS:g}")
    return time.monotonic() + seconds


def _flag(request: Request, name: str) -> bool:
    text = request.query_params.get(name, "false")
    if text not in ("true", "false"):
        raise bad_request(f"expected {name}=true or {name}=false")
    return text == "true"


def _declared_bytes(request: Request, otherwise: int) -> int:
    """Return the length of the body that the request declares."""
    text = request.headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else otherwise


async def _body(request: Request, deadline: float) -> bytes:
    """Return the body. Reject it if it is too large or not complete in time.

    If its declared length is too large, read it without storing it: a client that still sends reads no reply.
    """
    body = bytearray()
    too_large = _declared_bytes(request, 0) > MOST_BODY_BYTES
    try:
        async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
            async for part in request.stream():
                if not too_large:
                    body += part
                if len(body) > MOST_BODY_BYTES:
                    raise _too_large()
    except TimeoutError:
        raise RefusedRequestError(
            HTTPStatus.REQUEST_TIMEOUT, "the body was not complete in time. Nothing was written."
        ) from None
    if too_large:
        raise _too_large()
    return bytes(body)


def _too_large() -> RefusedRequestError:
    return RefusedRequestError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the body has more than {MOST_BODY_BYTES} bytes. Nothing was written. Send a smaller value.",
    )


def _redirect(there: RedirectTo, request: Request) -> Response:
    """Redirect to the leader. With status 307, clients keep the method and body, and follow by themselves."""
    path = request.scope["raw_path"].decode("ascii", "replace")
    query = request.scope["query_string"].decode("ascii", "replace")
    return RedirectResponse(f"{request.scope['scheme']}://{there.address}{path}{'?' if query else ''}{query}")


def _json(content: object, status: int = HTTPStatus.OK, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse(content, status, {"Cache-Control": "no-store"} | (headers or {}))


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
