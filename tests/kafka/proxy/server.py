"""The proxy: a port that clients connect to instead of the broker's. A separate thread serves it."""

import asyncio
import threading
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Self

from tests.kafka.proxy.link import Link, Stream, Traffic
from tests.kafka.proxy.rules import EveryNth, Fault, Rule, Where, anywhere
from tools.ports import HOST

_SECONDS = 10
_ACCEPTING_SECONDS = 0.01
"""Some iterations of the event loop, in which each accepted connection becomes a link."""


class Proxy:
    """A proxy between clients and one broker. It forwards every byte unless a rule applies.

    ``port`` is the port that the broker's second listener advertises, and ``upstream`` is that listener's own
    address. So a client that bootstraps through the proxy continues to use it. Use the proxy as a context manager.
    The exit closes its connections and port, ends its thread, and raises the errors that occurred in the proxy.
    """

    def __init__(self, port: int, upstream: str) -> None:
        self.traffic = Traffic()
        self._port = port
        self._upstream = upstream
        self._rules: tuple[Rule, ...] = ()
        self._links: set[asyncio.Task[None]] = set()
        self._carrying: set[Link] = set()
        self._failures: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name=f"proxy-{port}", daemon=True)
        self._started: Future[asyncio.AbstractEventLoop] = Future()
        self._stop = asyncio.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.result(_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_SECONDS)
        if self._thread.is_alive():
            raise TimeoutError(f"the proxy's thread did not end within {_SECONDS} s")
        if self._failures and error is None:
            raise BaseExceptionGroup("connections failed within the proxy", self._failures)

    @property
    def bootstrap(self) -> str:
        """The address that clients connect to."""
        return f"{HOST}:{self._port}"

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._links)

    def connections_of(self, client_id: str) -> int:
        """Return the number of open connections of clients with this ``client.id``."""
        return sum(link.client_id == client_id for link in tuple(self._carrying))

    def add(
        self,
        fault: Fault,
        api: int | None = None,
        *,
        nth: int = 1,
        times: int | None = 1,
        where: Where = anywhere,
        error: int = 0,
        deposed_for: Where | None = None,
    ) -> Rule:
        """Add a rule for requests that arrive from now on; see `Rule`. It applies until `clear`."""
        rule = Rule(self._loop, fault, api, nth=nth, times=times, where=where, error=error, deposed_for=deposed_for)
        return self._added(rule)

    def reset_every(self, requests: int, api: int | None = None, *, where: Where = anywhere) -> Rule:
        """Break every connection at each ``requests``th request, before the proxy forwards that request.

        All requests of a connection count, also the one or two that the client itself sends first. With ``api``, only
        requests of that API break the connection.
        """
        rule = EveryNth(self._loop, Fault.RESET_BEFORE_REQUEST, api, nth=requests, where=where)
        return self._added(rule)

    def clear(self) -> None:
        """Remove all rules and counts. Held frames never arrive, because their connections break."""
        rules, self._rules = self._rules, ()
        for rule in rules:
            rule.discard()
        self.traffic.clear()

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return self._started.result(_SECONDS)

    def _added(self, rule: Rule) -> Rule:
        self._rules = (*self._rules, rule)
        return rule

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except OSError as error:  # the port is in use
            self._started.set_exception(error)

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, HOST, self._port)
        self._started.set_result(asyncio.get_running_loop())
        try:
            await self._stop.wait()
        finally:
            # If a server closes after it accepted a connection and before it created the transport, it leaks the
            # connection, up to Python 3.11 at least. So stop accepting first, and let the accepted connections become
            # links.
            for listening in server.sockets:
                asyncio.get_running_loop().remove_reader(listening)
            await asyncio.sleep(_ACCEPTING_SECONDS)
            server.close()
            for link in self._links:
                link.cancel()
            await asyncio.gather(*self._links, return_exceptions=True)
            await server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Stream(reader, writer)
        link = asyncio.get_running_loop().create_task(self._carry(client))
        self._links.add(link)
        link.add_done_callback(partial(self._ended, client))

    async def _carry(self, client: Stream) -> None:
        host, _, port = self._upstream.rpartition(":")
        try:
            broker = Stream(*await asyncio.open_connection(host, int(port)))
        except OSError:
            return  # the broker is down, and the client gets a reset
        link = Link(client, broker, lambda: self._rules, self.traffic)
        self._carrying.add(link)
        try:
            await link.run()
        finally:
            self._carrying.discard(link)

    def _ended(self, client: Stream, link: asyncio.Task[None]) -> None:
        client.reset()
        self._links.discard(link)
        if not link.cancelled() and (error := link.exception()) is not None:
            self._failures.append(error)
