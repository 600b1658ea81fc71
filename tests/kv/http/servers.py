"""Nodes of the store as processes, plain HTTP requests to them, and a proxy that loses responses."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager

from key_value_store.http.wire import host_and_port
from tools.kafka_broker.waiting import wait_until
from tools.ports import held_ports

SECONDS = 60
TOKEN = "canary-token-0123456789"
COMMAND = (sys.executable, "-m", "key_value_store", "serve")


class Served:
    """A node in a separate process, at ``host:port``."""

    def __init__(self, folder, address, words):
        """Run ``serve`` with the arguments ``words``, which name the folder and the address."""
        folder.mkdir(parents=True, exist_ok=True)
        self.address = address
        self.output = folder / "output"
        with self.output.open("wb") as output:
            # The node has its own process group, so that a signal to it reaches no other process.
            self.process = subprocess.Popen([*COMMAND, *words], stdout=output, stderr=output, process_group=0)

    @classmethod
    def of(cls, log, folder, address, nodes, *more):
        """Start a node of these nodes over a log, with more options."""
        where = ["--folder", str(folder), "--listen", address, *(f"--node={each}" for each in nodes)]
        return cls(folder, address, [log, *where, *more])

    def wait_until_ready(self):
        wait_until(lambda: f"node {self.address}" in self.said() or self.ended(), SECONDS, self.said)
        assert not self.ended(), self.said()

    def said(self):
        return self.output.read_text()

    def ended(self):
        return self.process.poll() is not None

    def signal(self, number):
        os.kill(self.process.pid, number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait(SECONDS)

    def end(self):
        if not self.ended():
            self.signal(signal.SIGCONT)
            self.kill()


@contextmanager
def serving(folder, count=2, shards=2, log=None, *, host="127.0.0.1", more=()):
    """Yield ``count`` ready nodes over one log, with more options. The default log is in a directory."""
    log = log or str(folder / "log")
    with ExitStack() as ending:
        addresses = [f"{host}:{port}" for port in ending.enter_context(held_ports(count))]
        nodes = []
        for at, address in enumerate(addresses):
            options = [f"--shards={shards}", *more]
            nodes.append(Served.of(log, folder / f"node-{at}", address, addresses, *options))
            ending.callback(nodes[-1].end)
        for each in nodes:
            each.wait_until_ready()
        yield nodes


def protections(files):
    """Return the options for a token and for TLS with the fixture ``files``, each by the name of its first one."""
    tls = [f"--tls-{each}.pem" for each in (f"certificate={files}/cert", f"key={files}/key", f"ca={files}/cert")]
    return {"--token-file": [f"--token-file={files}/token"], "--tls-certificate": tls}


def parts_of(address):
    parts = host_and_port(address)
    assert parts is not None
    return parts


def ask(address, method, path, body=None, headers=None):
    """Send one request without following redirects, and return (status, headers, body)."""
    host, port = parts_of(address)
    connection = http.client.HTTPConnection(host, port, timeout=SECONDS)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def leader_of(nodes, key_path):
    """Return the address of the node that leads the shard of a key."""
    status, headers, _ = ask(nodes[0].address, "GET", key_path)
    return headers["Location"].split("/")[2] if status == 307 else nodes[0].address


class Wire:
    """A proxy to a node.

    It drops requests whose method is in ``dropping``. It loses the response if the method is in ``losing``, and its
    last byte if it is in ``cutting``.
    """

    def __init__(self, address):
        self._to = parts_of(address)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.dropping = set()
        self.losing = set()
        self.cutting = set()
        self.requests = []
        threading.Thread(target=self._run, daemon=True).start()

    def close(self):
        self._listener.close()

    def _run(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with near:
                near.settimeout(SECONDS)
                request = _whole(near)
                method = request.split(b" ", 1)[0].decode()
                self.requests.append(method)
                reply = b"" if method in self.dropping else self.forwarded(request)
                if method not in self.losing:
                    near.sendall(reply[:-1] if method in self.cutting else reply)

    def forwarded(self, request):
        with socket.create_connection(self._to, SECONDS) as far:
            far.sendall(request)
            return b"".join(iter(lambda: far.recv(65536), b""))


def _whole(near):
    """Read a request with its body."""
    found = b""
    while b"\r\n\r\n" not in found:
        found += near.recv(65536)
    head, _, body = found.partition(b"\r\n\r\n")
    length = next((int(each[16:]) for each in head.lower().split(b"\r\n") if each.startswith(b"content-length: ")), 0)
    while len(body) < length:
        body += near.recv(65536)
    return head + b"\r\n\r\n" + body
