"""The HTTP API of one node, as an ASGI application."""

import asyncio
import ipaddress
import logging
import time
from collections.abc import Awaitable, Callable
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

from key_value_store.http.redirecting import Elsewhere, Redirecting
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
"""More requests that wait for the log are sent away: each has a thread."""

_PAGE_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"
_LOG = logging.getLogger("spark_cas")

Result = TypeVar("Result")
Endpoint = Callable[[Request], Awaitable[Response]]


class _AnyKey(Convertor[str]):
    """The rest of a path, with line ends too, at which the framework's own stops. The key itself is read raw."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("anykey", _AnyKey())


def app_of(node: Node, address: str, log: str) -> Starlette:
    """The application of a node that others reach at ``address``; ``log`` is the name that the status shows."""
    api = _Api(node, address, log)
    routes = [
        Route("/", api.page, methods=["GET"]),
        Route(HEALTH, api.health, methods=["GET"]),
        Route(STATUS, api.status, methods=["GET"]),
        Route(KEYS + "{key:anykey}", api.key, methods=["GET", "PUT", "DELETE"]),
        Route(TRANSACTIONS, api.transactions, methods=["POST"]),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _http_error})


def _guarded(endpoint: Callable[["_Api", Request], Awaitable[Response]]) -> Callable[..., Awaitable[Response]]:
    """The endpoint, for requests that mean this node; what it raises becomes a reply."""

    async def guarded(api: "_Api", request: Request) -> Response:
        try:
            api.require_host(request)
            return await endpoint(api, request)
        except Exception as error:  # noqa: BLE001 - a client gets a reply, whatever happened
            reply = reply_of(error)
            if reply.status_code == HTTPStatus.INTERNAL_SERVER_ERROR:
                _LOG.error("%s %s", request.method, request.url.path, exc_info=error)
            return reply

    return guarded


class _Api:
    """The endpoints."""

    def __init__(self, node: Node, address: str, log: str) -> None:
        self._node = node
        self._address = address
        self._log = log
        self._redirecting = Redirecting(node, address)
        self._limiter = anyio.CapacityLimiter(MOST_AT_ONCE)
        parts = host_and_port(address)
        self._hosts = {"localhost", parts[0].lower() if parts else ""}
        self._page = files("key_value_store.http").joinpath("status.html").read_text(encoding="utf-8")

    def require_host(self, request: Request) -> None:
        """Refuse a name that is not this node's: a page of another site may have had it resolved to here."""
        # As it was sent: for a name that it finds malformed the framework puts in the address of the server.
        try:
            host = urlsplit("//" + request.headers.get("host", "")).hostname or ""
        except ValueError:
            host = ""
        if host not in self._hosts and not _is_ip(host):
            raise RefusedRequestError(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"this is node {self._address}, and the request is for another host. Ask by that address or by IP.",
            )

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
        _refuse_reserved(key)
        deadline = _deadline(request)
        if request.method == "DELETE":
            call = partial(self._node.delete, key, expected_version=expected)
        else:
            value = await _body(request, deadline)
            call = partial(self._node.put, key, value, expected_version=expected)
        done = await self._ask(key, lambda left: call(timeout=left), deadline)
        if isinstance(done, Elsewhere):
            return _redirect(done, request)
        if request.method == "DELETE":
            return _json({"offset": done})
        status = HTTPStatus.CREATED if expected is None else HTTPStatus.OK
        return _json({"version": done}, status, {"ETag": tag_of(done)})

    async def _get(self, request: Request, key: bytes) -> Response:
        stale = _flag(request, "stale")
        read = partial(self._node.get, key, stale=stale)
        found = await self._ask(key, lambda left: read(timeout=left), _deadline(request))
        if isinstance(found, Elsewhere):
            return _redirect(found, request)
        how = {READ_HEADER: STALE if stale else LINEARIZABLE, "Cache-Control": "no-cache"}
        if found.value is None or found.version is None:
            return error_reply(HTTPStatus.NOT_FOUND, ABSENT, "the key is absent.", how, version=None)
        headers = how | {"ETag": tag_of(found.version), "X-Content-Type-Options": "nosniff"}
        if version_of_tag(request.headers.get("if-none-match", "")) == found.version:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(found.value, headers=headers, media_type="application/octet-stream")

    @_guarded
    async def transactions(self, request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            # A page of another site may send any other type to here without asking.
            raise RefusedRequestError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "expected Content-Type: application/json. Nothing was written."
            )
        deadline = _deadline(request)
        asked = transaction_of(await _body(request, deadline))
        if not asked.writes:
            raise bad_request("a transaction writes at least one key")
        for each in asked.writes:
            _refuse_reserved(each)
        call = partial(self._node.transact, asked.writes, asked.expected)
        done = await self._ask(next(iter(asked.writes)), lambda left: call(timeout=left), deadline)
        return _redirect(done, request) if isinstance(done, Elsewhere) else _json(versions_json(done))

    async def _ask(self, key: bytes, call: Callable[[float], Result], deadline: float) -> Result | Elsewhere:
        """Have a thread do it. A client that goes away does not end what was begun."""
        if self._limiter.available_tokens < 1:
            raise RefusedRequestError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{MOST_AT_ONCE} requests wait for the log already. Nothing was written. Try again.",
            )
        asked = partial(self._redirecting.ask, key, call, max(0.0, deadline - time.monotonic()))
        return await anyio.to_thread.run_sync(asked, abandon_on_cancel=True, limiter=self._limiter)


async def _http_error(request: Request, error: Exception) -> Response:
    """What the framework itself refuses: an unknown path, a method that a path does not have."""
    if not isinstance(error, HTTPException):
        raise error
    status = HTTPStatus(error.status_code)
    message = f"{status.phrase}: {request.method} is not what this path takes. "
    message += "The API is in examples/key_value_store/README.md."
    return error_reply(status, status.name, message, error.headers)


def _refuse_reserved(key: bytes) -> None:
    if key == LEADER_KEY:
        raise bad_request("this key names leaders, and is not for writing")


def _deadline(request: Request) -> float:
    """When the request has to be answered, on the steady clock: ``timeout`` seconds from here."""
    text = request.query_params.get("timeout", str(REQUEST_SECONDS))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= MOST_REQUEST_SECONDS:
        raise bad_request(f"expected timeout=SECONDS, above 0 and up to {MOST_REQUEST_SECONDS:g}")
    return time.monotonic() + seconds


def _flag(request: Request, name: str) -> bool:
    text = request.query_params.get(name, "false")
    if text not in ("true", "false"):
        raise bad_request(f"expected {name}=true or {name}=false")
    return text == "true"


async def _body(request: Request, deadline: float) -> bytes:
    """The body, if it comes in time and is not too large."""
    found = bytearray()
    try:
        async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
            async for part in request.stream():
                found += part
                if len(found) > MOST_BODY_BYTES:
                    raise RefusedRequestError(
                        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                        f"a body has at most {MOST_BODY_BYTES} bytes. Nothing was written. Make it smaller.",
                    )
    except TimeoutError:
        raise RefusedRequestError(
            HTTPStatus.REQUEST_TIMEOUT, "the body did not come in time. Nothing was written."
        ) from None
    return bytes(found)


def _redirect(there: Elsewhere, request: Request) -> Response:
    """To the node that leads, with method and body: 307 says that they stay, and clients follow it by themselves."""
    path = request.scope["raw_path"].decode("ascii", "replace")
    query = request.scope["query_string"].decode("ascii", "replace")
    return RedirectResponse(f"http://{there.address}{path}{'?' if query else ''}{query}")


def _json(content: object, status: int = HTTPStatus.OK, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse(content, status, {"Cache-Control": "no-store"} | (headers or {}))


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
