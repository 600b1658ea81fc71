"""Nodes in processes of their own are killed, or stopped and let go on: nothing acknowledged is lost or stale."""

import signal

import pytest

from spark_cas.kv import Node
from spark_cas.log.open import open_log
from spark_cas.testing.writing import records_in
from tests.kafka.clients import create_topic
from tests.kv.processes import processes

FLOOD = 100_000
"""More than is written before the kill."""
BEFORE = 300


@pytest.fixture(params=["directory", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.timeout(240)])])
def address(request, tmp_path):
    """Of a log of one shard."""
    if request.param == "kafka":
        broker = request.getfixturevalue("broker")
        return f"kafka://{broker.bootstrap}/{create_topic(broker.bootstrap)}"
    with open_log(str(tmp_path / "log")) as log:
        log.create(1)
    return str(tmp_path / "log")


def killed_in_a_flood(node, prefix):
    """Kill a node while it writes, and return what it had acknowledged."""
    node.say("flood", prefix, str(FLOOD))
    acknowledged = [node.line() for _ in range(BEFORE)]
    node.kill()
    return acknowledged + node.rest()


def test_two_nodes_survive_the_killing_of_either(address, tmp_path):
    with processes(address, tmp_path, "a", "b") as (a, b):
        a.ask("lead", "0")
        acknowledged = killed_in_a_flood(a, "first")
        b.ask("lead", "0")
        assert b.ask("put", "next", "1")[0].isdigit()
        with processes(address, tmp_path, "a") as (again,):
            acknowledged += killed_in_a_flood(b, "second")
            again.ask("lead", "0")
            assert again.ask("get", "next") == ["1"]
    with Node(address, folder=tmp_path / "new", address="new") as new:
        new.lead(0)
        lost = [key for key in acknowledged if new.get(key.encode(), stale=True).value != key.encode()]
    assert lost == []
    assert 2 * BEFORE <= len(acknowledged) < 2 * FLOOD
    with open_log(address) as log:
        keys = [row["key"] for _, row in records_in(log, 0) if row["value"] is not None]
    assert len(keys) == len(set(keys))


def test_a_leader_that_thaws_tells_and_writes_nothing_old(address, tmp_path):
    with processes(address, tmp_path, "a", "b") as (a, b):
        a.ask("lead", "0")
        a.ask("put", "key", "old")
        a.say("flood", "first", str(FLOOD))
        acknowledged = [a.line() for _ in range(BEFORE)]
        a.signal(signal.SIGSTOP)
        b.ask("lead", "0")
        b.ask("put", "key", "new")
        a.say("get", "key")
        a.signal(signal.SIGCONT)
        *told, refused = a.rest()
        assert refused == "NOT_LEADER b"
        assert a.rest() == ["NOT_LEADER b"]
        assert b.ask("get", "key") == ["new"]
        lost = [key for key in acknowledged + told if b.ask("get", key) != [key]]
    assert lost == []
