"""A proxy before an HTTP store that injects an outage: from a given request on, for some seconds or permanently."""

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

SILENT = "silent"
"""The proxy accepts connections and never answers. It executes their requests when the outage ends."""
BUSY = "503"
GIVES_UP = "RequestTimeout"
"""S3's response, an HTTP 400, to a connection that stalled."""
CUT_OFF = "cut off"
"""The proxy executes a request, and sends half of the response."""

_ANSWERS = {
    BUSY: (503, b"<Error><Code>SlowDown</Code></Error>"),
    GIVES_UP: (400, b"<Error><Code>RequestTimeout</Code></Error>"),
}


@dataclass
class BadDay:
    """The outage for requests, beginning with the first one that is a ``method`` on a path that contains ``path``."""

    kind: str
    seconds: float
    method: str = ""
    path: str = ""
    after: bool = False
    """Whether the store executes that first request, so that only its response is lost."""
    began: threading.Event = field(default_factory=threading.Event)
    asked: int = 0
    """The number of requests during the outage."""
    _until: float = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def meets(self, method: str, path: str) -> tuple[bool, bool]:
        """Return whether the outage affects a request, and whether the store executes that request first."""
        with self._lock:
            first = not self.began.is_set() and method.startswith(self.method) and self.path in unquote(path)
            if first:
                self.began.set()
                self._until = time.monotonic() + self.seconds
            struck = self.began.is_set() and self.left > 0
            self.asked += struck
            return struck, first and self.after

    @property
    def left(self) -> float:
        """The seconds until the outage is over."""
        return max(0.0, self._until - time.monotonic())


class Proxy(ThreadingHTTPServer):
    """A proxy between a log and its store."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, target: str, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.target = target.removeprefix("http://")
        self.day: BadDay | None = None
        self.closed = threading.Event()

    @property
    def endpoint(self) -> str:
        """The URL of the proxy."""
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: object) -> None:
        """Ignore errors from clients that gave up."""


@contextmanager
def proxy_to(target: str, port: int = 0) -> Iterator[Proxy]:
    """Run a proxy to a server until the end of the block."""
    with Proxy(target, port) as proxy:
        threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield proxy
        proxy.closed.set()
        proxy.shutdown()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        day = self.server.day
        struck, after = day.meets(self.command, self.path) if day else (False, False)
        if not struck or day is None:
            self._pass_on(*self._ask(body))
            return
        if after:
            self._ask(body)
        if day.kind == SILENT:
            self.close_connection = True
            if not self.server.closed.wait(min(day.left, 60)) and not after:
                self._ask(body)
            self.server.closed.wait(60)
            return
        if day.kind == CUT_OFF:
            status, headers, data = self._ask(body)
            self._pass_on(status, headers, data, half=True)
            return
        status, text = _ANSWERS[day.kind]
        self._pass_on(status, [], b"" if self.command == "HEAD" else text)

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        server = http.client.HTTPConnection(self.server.target, timeout=30)
        # Keep all headers including the host, because the request is signed.
        server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            server.putheader(name, value)
        server.endheaders(body)
        reply = server.getresponse()
        data = reply.read()
        server.close()
        return reply.status, reply.getheaders(), data

    def _pass_on(self, status: int, headers: list[tuple[str, str]], data: bytes, *, half: bool = False) -> None:
        self.close_connection = True
        if half and not data:
            return
        self.send_response(status)
        length = str(len(data))
        for name, value in headers:
            if name.lower() == "content-length":
                length = value  # the length in a HEAD response, which has no body
            elif name.lower() not in ("transfer-encoding", "connection", "date", "server"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.send_header("Connection", "close")  # a request after the proxy has closed must not reuse the connection
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if half else data)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Print nothing."""
