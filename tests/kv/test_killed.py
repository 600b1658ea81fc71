"""Kill or freeze nodes in processes of their own: no acknowledged write is lost, and no read is stale."""

import signal
from collections import Counter

import pytest

from key_value_store import Node
from spark_cas.log.open import open_log
from tests.kafka.clients import create_topic
from tests.kv.processes import processes
from tests.long import full
from tests.support.writing import records_in

FLOOD = 100_000
"""More keys than a node writes before it is killed."""
BEFORE = 200


pytestmark = pytest.mark.timeout(240)

KAFKA = pytest.mark.kafka


@pytest.fixture
def address(request, tmp_path):
    """The address of a log with one shard."""
    if request.param == "kafka":
        broker = request.getfixturevalue("broker")
        return f"kafka://{broker.bootstrap}/{create_topic(broker.bootstrap)}"
    with open_log(str(tmp_path / "log")) as log:
        log.create(1)
    return str(tmp_path / "log")


def assert_each_is_there_once(address, keys):
    with open_log(address) as log:
        found = Counter(row["key"].decode() for _, row in records_in(log, 0))
    assert [key for key in keys if found[key] != 1] == []


def killed_in_a_flood(node, prefix):
    """Kill a node while it writes, and return the keys that it had acknowledged."""
    node.say("flood", prefix, str(FLOOD))
    acknowledged = [node.line() for _ in range(BEFORE)]
    node.kill()
    return acknowledged + node.release()


@pytest.mark.parametrize("address", ["directory", *full("kafka", also=KAFKA)], indirect=True)
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
    assert_each_is_there_once(address, acknowledged)


@pytest.mark.parametrize("address", ["directory", *full("kafka", also=KAFKA)], indirect=True)
def test_thawed_leader_returns_and_writes_nothing_old(address, tmp_path):
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
        *told, refused = a.release()
        assert refused == "NOT_LEADER b"
        assert a.release() == ["NOT_LEADER b"]
        assert b.ask("get", "key") == ["new"]
    assert_each_is_there_once(address, acknowledged + told)
