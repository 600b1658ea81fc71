"""The response of a node whose log fails, and the error that a client derives from each response."""

import contextlib
import json
import threading
from email.message import Message
from http.client import HTTPMessage

import pytest
import uvicorn

from key_value_store.errors import MayBeStaleError, NotLeaderError, VersionMismatchError
from key_value_store.http import Client
from key_value_store.http.app import app_of
from key_value_store.http.exchange import Reply
from key_value_store.http.replies import reply_of
from key_value_store.http.serve import tcp_listener
from key_value_store.http.verdict import NotDone, Refused, Unclear, verdict_of
from spark_cas.core.errors import (
    ERRORS_BY_KIND,
    RecordTooLargeError,
    StorageError,
    UnknownOutcomeError,
)
from tests.kv.http.servers import SECONDS, ask
from tests.kv.nodes import keys_of, node
from tests.support.faults import Fault, FaultyLog, When
from tests.support.memory_log import MemoryLog
from tools.kafka_broker.waiting import wait_until

KEY = keys_of(0, 1)[0]
LEADER_RECORD = 1


@contextlib.contextmanager
def served(log, folder):
    """A node over any log, served by a thread of this process."""
    listener = tcp_listener("127.0.0.1", 0)
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    with listener, node(lambda: log, folder, "node", shards=[0]) as served_node:
        config = uvicorn.Config(app_of(served_node, "node", "log"), lifespan="off", log_level="critical", ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_until(lambda: server.started, SECONDS, lambda: "the server does not start")
            yield address
        finally:
            server.should_exit = True
            thread.join(SECONDS)


def faulty(*faults, **more):
    memory = MemoryLog()
    memory.create(2)
    return FaultyLog(memory, *faults, **more)


def fail():
    raise StorageError("the store is down.")


def test_a_lost_reply_of_the_log_is_504(tmp_path):
    log = faulty(Fault("append", LEADER_RECORD + 1, When.AFTER), lose_append_replies=True)
    with served(log, tmp_path) as address:
        with pytest.raises(UnknownOutcomeError):
            Client([address]).put(KEY, b"1")
        assert ask(address, "GET", "/keys/" + KEY.decode())[2] == b"1"


def test_failing_log_is_503_and_reported_if_it_lasts(tmp_path):
    log = faulty(*(Fault("append", LEADER_RECORD + at, When.BEFORE, fail) for at in (1, 2, 3)))
    with served(log, tmp_path) as address:
        status, headers, body = ask(address, "PUT", "/keys/" + KEY.decode(), b"1")
        assert (status, headers["Retry-After"], json.loads(body)["token"]) == (503, "1", "STORAGE")
        status, headers, body = ask(address, "GET", "/keys/" + KEY.decode())
        assert (status, headers["Retry-After"], json.loads(body)["token"]) == (503, "1", "MAY_BE_STALE")
        assert Client([address]).put(KEY, b"2"), "the client retries transient errors"
        assert Client([address]).get(KEY).value == b"2"


def test_defect_shows_no_details(tmp_path):
    def defect():
        raise RuntimeError("hunter2")

    with served(faulty(Fault("append", LEADER_RECORD + 1, When.BEFORE, defect)), tmp_path) as address:
        status, _, body = ask(address, "PUT", "/keys/" + KEY.decode(), b"1")
    assert (status, json.loads(body)["token"]) == (500, "INTERNAL")
    assert b"hunter2" not in body


def told(error):
    """Return the result of a client for a node's response to an error."""
    reply = reply_of(error)
    headers = HTTPMessage()
    for name, value in reply.headers.items():
        Message.__setitem__(headers, name, value)
    return verdict_of(Reply(reply.status_code, headers, bytes(reply.body)))


@pytest.mark.parametrize("error", [*ERRORS_BY_KIND.values(), NotLeaderError, VersionMismatchError, MayBeStaleError])
def test_each_error_keeps_its_meaning(error):
    kind, verdict = error.kind, told(error("the reason."))
    if kind == "UNKNOWN_OUTCOME":
        assert verdict == Unclear("the reason.")
    elif isinstance(verdict, NotDone):
        assert kind in ("NOT_LEADER", "MAY_BE_STALE", "CONFLICT", "FENCED", "STORAGE", "ACCESS_DENIED", "NOT_STORED")
    else:
        assert isinstance(verdict, Refused)
        assert (type(verdict.error), str(verdict.error)) == (error, f"[{kind}] the reason.")


def test_client_result_of_each_kind_of_error():
    assert isinstance(told(RuntimeError("defect")), Unclear)
    assert isinstance(told(MayBeStaleError("again.")), NotDone)
    assert isinstance(told(RecordTooLargeError("smaller.")), Refused)
    mismatch = told(VersionMismatchError("another.", b"key", 7))
    assert isinstance(mismatch, Refused)
    assert isinstance(mismatch.error, VersionMismatchError)
    assert mismatch.error.actual == 7


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'"text"', b'{"token": "STORAGE"}'])
@pytest.mark.parametrize("status", [400, 404, 500, 502, 503, 504])
def test_replies_of_strangers_prove_nothing(status, body):
    assert isinstance(verdict_of(Reply(status, HTTPMessage(), body)), Unclear)


def test_unexpected_status_is_unclear():
    for status in (202, 204, 206, 301):
        assert isinstance(verdict_of(Reply(status, HTTPMessage(), b"")), Unclear)
