"""Nodes with a token and TLS, and limits for clients that are slow or send much."""

import json
import os
import socket
import ssl
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPResponse
from itertools import chain
from pathlib import Path

import pytest

from key_value_store import Node
from key_value_store.http import Access, Client
from key_value_store.http.access import read_token, server_context
from key_value_store.http.app import MOST_BODIES_BYTES
from key_value_store.http.serve import HEADER_SECONDS
from key_value_store.http.wire import MOST_BODY_BYTES, path_of_key
from spark_cas import open_log
from spark_cas.core.errors import StorageError, UnknownOutcomeError
from tests.kv.http.servers import SECONDS, TOKEN, Wire, ask, leader_of, parts_of, protections, serving


@pytest.fixture(scope="module")
def with_token(files, tmp_path_factory):
    """A node with a token and without TLS."""
    with serving(tmp_path_factory.mktemp("kv"), count=1, more=[f"--token-file={files}/token"]) as served:
        yield served[0]


def test_client_with_the_token_follows_the_leader_over_tls(secured_client):
    for number in range(8):  # keys of both shards, so the first node redirects some
        version = secured_client.put(b"%d" % number, b"1")
        assert secured_client.get(b"%d" % number).version == version


def test_other_clients_are_rejected_over_tls(secured, files):
    nodes = [each.address for each in secured]
    with pytest.raises(ValueError, match="token"):
        Client(nodes, Access(tls=Access.of_files(None, files / "cert.pem").tls)).put(b"a", b"1")
    with pytest.raises(StorageError, match="Nothing was written"):  # the client does not trust the certificate
        Client(nodes, Access(TOKEN, ssl.create_default_context())).put(b"a", b"1", timeout=0.5)
    with pytest.raises(UnknownOutcomeError):
        Client(nodes, Access(TOKEN)).put(b"a", b"1", timeout=0.5)


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer canary", f"Bearer {TOKEN}x", f"Digest {TOKEN}", TOKEN, "Basic !", "Basic Y2FuYXJ5"],
)
@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/"), ("GET", "/status"), ("GET", "/keys/a"), ("PUT", "/keys/a")]
)
def test_request_without_the_token_is_rejected(with_token, authorization, method, path):
    headers = {} if authorization is None else {"Authorization": authorization}
    status, sent, body = ask(with_token.address, method, path, None, headers)
    assert (status, json.loads(body)["token"]) == (401, "UNAUTHORIZED")
    assert sent["WWW-Authenticate"].startswith("Basic ")
    assert b"canary" not in body


def test_browser_sends_the_token_as_password(with_token):
    # base64 of "user:canary-token-0123456789"
    headers = {"Authorization": "Basic dXNlcjpjYW5hcnktdG9rZW4tMDEyMzQ1Njc4OQ=="}
    assert ask(with_token.address, "GET", "/", None, headers)[0] == 200
    assert ask(with_token.address, "GET", "/status", None, {"Authorization": f"bearer {TOKEN}"})[0] == 200


def test_body_without_the_token_is_not_waited_for(with_token):
    with socket.create_connection(parts_of(with_token.address), SECONDS) as client:
        client.sendall(b"PUT /keys/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 401 ")


def test_token_is_shown_nowhere(with_token, files):
    assert TOKEN not in with_token.said()
    assert TOKEN not in repr(Access.of_files(files / "token", None))


@pytest.mark.parametrize("content", [b"", b"canary", b"canary-token 0123456789", b"canary-\xff-0123456789", None])
def test_invalid_token_file_is_rejected_without_its_content(tmp_path, content):
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ValueError, match="token file") as rejected:
        read_token(file)
    assert "canary" not in str(rejected.value)


def test_invalid_certificates_are_rejected(tmp_path, files):
    for certificate, key in [("no", "key.pem"), ("cert.pem", "token"), ("token", "key.pem")]:
        with pytest.raises(ValueError, match="certificate"):
            server_context(files / certificate, files / key)
    for ca in ("no", "token"):
        with pytest.raises(ValueError, match="CA certificates"):
            Access.of_files(None, files / ca)


class Redirect(Wire):
    """A node that sends each client to another address."""

    to = ""

    def forwarded(self, request):
        self.received = request
        head = f"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://{self.to}/keys/a\r\nContent-Length: 0\r\n\r\n"
        return head.encode() if self.to else b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture
def elsewhere():
    made = Redirect("127.0.0.1:1")
    yield made
    made.close()


@pytest.fixture
def redirecting(elsewhere):
    made = Redirect("127.0.0.1:1")
    made.to = elsewhere.address
    yield made
    made.close()


def test_a_value_is_not_sent_to_an_unknown_leader(redirecting, elsewhere):
    with pytest.raises(ValueError, match="not one of the client's nodes"):
        Client([redirecting.address]).put(b"a", b"secret")
    with pytest.raises(ValueError, match="not one of the client's nodes"):
        Client([redirecting.address]).transact({b"a": b"secret"})
    assert elsewhere.requests == []


def test_a_token_is_not_sent_to_an_unknown_leader(redirecting, elsewhere):
    with pytest.raises(ValueError, match="not one of the client's nodes"):
        Client([redirecting.address], Access(TOKEN)).get(b"a")
    assert elsewhere.requests == []
    with pytest.raises(StorageError):
        Client([redirecting.address]).get(b"a", timeout=0.3)
    assert "GET" in elsewhere.requests
    assert b"Authorization" not in elsewhere.received


def test_node_sends_no_request_to_an_unknown_leader(tmp_path, files, elsewhere):
    """Any writer to the log can name a leader. The node takes over instead."""
    log = str(tmp_path / "log")
    with open_log(log) as opened:
        opened.create(1)
    with Node(log, address=elsewhere.address, folder=tmp_path / "other") as other:
        other.lead(0)
        with serving(tmp_path, 1, log=log, more=[f"--token-file={files}/token"]) as [served]:
            client = Client([served.address], Access(TOKEN))
            assert client.put(b"a", b"1", timeout=SECONDS)
    assert elsewhere.requests == []


def test_incomplete_headers_are_not_waited_for(nodes):
    with ThreadPoolExecutor(2) as threads:
        for each in [threads.submit(call, nodes) for call in (_first_request, _second_request)]:
            each.result()


def _first_request(nodes):
    began = time.monotonic()
    with socket.create_connection(parts_of(nodes[0].address), SECONDS) as slow:
        slow.sendall(b"GET /health HTTP/1.1\r\nHost: loc")
        time.sleep(HEADER_SECONDS / 2)
        slow.sendall(b"alhost\r\n")
        assert slow.recv(100) == b""
    assert HEADER_SECONDS - 1 < time.monotonic() - began < HEADER_SECONDS + 5


def _second_request(nodes):
    with socket.create_connection(parts_of(nodes[0].address), SECONDS) as slow:
        slow.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        reply = HTTPResponse(slow)
        reply.begin()
        assert (reply.status, bool(reply.read())) == (200, True)
        slow.sendall(b"GET /hea")
        began = time.monotonic()
        while time.monotonic() - began < HEADER_SECONDS - 2:
            time.sleep(1)
            slow.sendall(b"l")
        assert slow.recv(100) == b""
    assert time.monotonic() - began < HEADER_SECONDS + 5


def test_large_bodies_are_limited_before_they_are_read(nodes):
    path = path_of_key(b"large")
    address = leader_of(nodes, path)
    head = f"PUT {path}?timeout=20 HTTP/1.1\r\nHost: localhost\r\nContent-Length: {MOST_BODY_BYTES}\r\n\r\n".encode()
    held = []
    try:
        for _ in range(MOST_BODIES_BYTES // MOST_BODY_BYTES):
            held.append(socket.create_connection(parts_of(address), SECONDS))
            held[-1].sendall(head + b"x")
        deadline = time.monotonic() + SECONDS
        while ask(address, "PUT", path, b"small")[0] != 503:
            assert time.monotonic() < deadline
    finally:
        for each in held:
            each.close()
    deadline = time.monotonic() + SECONDS
    while ask(address, "PUT", path, b"small")[0] != 200:
        assert time.monotonic() < deadline


@pytest.mark.parametrize("declared", [True, False])
def test_too_large_body_is_rejected(nodes, declared):
    body = b"x" * (MOST_BODY_BYTES + 1)
    assert ask(nodes[0].address, "PUT", "/keys/bad", body if declared else iter([body]))[0] == 413


def test_snapshots_are_private(tmp_path):
    log = str(tmp_path / "log")
    with open_log(log) as opened:
        opened.create(1)
    before = os.umask(0)
    try:
        Node(log, address="a", folder=tmp_path / "folder").close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o700


@pytest.mark.parametrize("missing", [["--token-file", "--tls-certificate"], ["--tls-certificate"], []])
def test_node_that_other_machines_can_reach_warns(tmp_path, files, missing):
    given = {option: more for option, more in protections(files).items() if option not in missing}
    with serving(tmp_path, 1, host="0.0.0.0", more=[*chain(*given.values())]) as [node]:  # noqa: S104 - on purpose
        warnings = [each for each in node.said().splitlines() if each.startswith("warning: ")]
    assert len(warnings) == bool(missing)
    assert [each for each in protections(files) if each in "".join(warnings)] == missing


def test_node_on_loopback_does_not_warn(nodes):
    assert "warning" not in nodes[0].said()


@pytest.mark.parametrize(
    "options",
    [
        ["--tls-certificate=cert.pem"],
        ["--tls-certificate=cert.pem", "--tls-key=key.pem"],
        ["--tls-ca=cert.pem"],
        ["--token-file=no"],
        ["--tls-certificate=cert.pem", "--tls-key=token", "--tls-ca=cert.pem"],
    ],
)
def test_invalid_security_options_exit_with_2(files, options):
    command = [sys.executable, "-m", "key_value_store", "serve", "log", "--folder", "folder", *options]
    ended = subprocess.run(command, cwd=files, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ended.returncode == 2, ended.stderr
    assert not Path(files, "folder").exists()
