"""The client: it finds the leader, and reports an unknown result as such."""

import pytest

from key_value_store import Versioned
from key_value_store.errors import VersionMismatchError
from key_value_store.http import Client
from key_value_store.http.wire import MOST_BODY_BYTES, path_of_key
from spark_cas.core.errors import StorageError, UnknownOutcomeError
from tests.kv.http.servers import SECONDS, Wire, leader_of
from tests.kv.nodes import keys_of
from tools.kafka_broker.waiting import wait_until
from tools.ports import held_ports


@pytest.fixture
def key(request):
    return request.node.name.encode()


@pytest.fixture
def wire(nodes, key):
    """A proxy to the node that leads the key's shard."""
    made = Wire(leader_of(nodes, path_of_key(key)))
    yield made
    made.close()


@pytest.fixture
def through(nodes, wire):
    """A client that sends its first request through the proxy."""
    return Client([wire.address, *(each.address for each in nodes)])


@pytest.mark.parametrize("at", [0, 1])
def test_any_node_leads_to_the_one_that_leads(nodes, key, at):
    client = Client([nodes[at].address, nodes[1 - at].address])
    version = client.put(key, b"1")
    assert client.get(key) == Versioned(b"1", version)
    assert client.delete(key, expected_version=version) > version
    assert client.get(key) == Versioned(None, None)
    assert client.put(key, b"2", expected_version=None)
    wait_until(lambda: client.get(key, stale=True).value == b"2", SECONDS, lambda: "the node does not follow")
    client.delete(key)


def test_nodes_that_do_not_listen_are_passed_over(nodes, key):
    with held_ports(1) as [port]:
        client = Client([f"127.0.0.1:{port}", nodes[0].address])
        assert client.get(key).value is None
        assert client.put(key, b"1", expected_version=None) == client.get(key).version


def test_mismatch_reports_the_current_version(client, key):
    version = client.put(key, b"1")
    with pytest.raises(VersionMismatchError) as refused:
        client.put(key, b"2", expected_version=None)
    assert (refused.value.key, refused.value.actual) == (key, version)
    with pytest.raises(VersionMismatchError) as refused:
        client.transact({key: b"2"}, {key: version + 1000})
    assert refused.value.actual == version


def test_transactions_over_shards(client):
    first, second = (keys_of(shard, 80)[-1] for shard in range(2))
    versions = client.transact({first: b"1", second: b"1"}, {first: None, second: None})
    again = client.transact({first: b"2", second: None}, versions)
    assert client.get(first) == Versioned(b"2", again[first])
    assert client.get(second).value is None


@pytest.mark.parametrize("how", ["losing", "cutting"])
@pytest.mark.parametrize("expected", [{}, {"expected_version": None}])
def test_write_with_a_lost_reply_is_reported_and_not_retried(through, wire, key, expected, how):
    setattr(wire, how, {"PUT"})
    with pytest.raises(UnknownOutcomeError):
        through.put(key, b"1", **expected)
    assert wire.requests == ["PUT"]
    assert through.get(key).value == b"1"


def test_lost_replies_of_deletes_and_transactions_are_reported(through, wire, key):
    wire.losing = {"DELETE", "POST"}
    with pytest.raises(UnknownOutcomeError):
        through.delete(key)
    with pytest.raises(UnknownOutcomeError):
        through.transact({key: b"1"})
    assert wire.requests == ["DELETE", "POST"]


def test_conditional_write_without_effect_is_retried(through, wire, key):
    version = through.put(key, b"1")
    wire.dropping = {"PUT"}
    assert through.put(key, b"2", expected_version=version) > version
    assert through.get(key).value == b"2"


def test_mismatch_after_a_lost_reply_is_not_reported_as_one(through, wire, key):
    version = through.put(key, b"1")
    wire.losing = {"PUT"}
    with pytest.raises(UnknownOutcomeError):
        through.put(key, b"2", expected_version=version)
    assert through.get(key).value == b"2"


@pytest.mark.parametrize("how", ["losing", "cutting"])
def test_read_with_a_lost_reply_is_sent_to_another_node(through, wire, key, how):
    through.put(key, b"12")
    setattr(wire, how, {"GET"})
    assert through.get(key).value == b"12"


def test_no_node_is_reported_with_nothing_written(key):
    with held_ports(1) as [port], pytest.raises(StorageError, match="Nothing was written"):
        Client([f"127.0.0.1:{port}"]).put(key, b"1", timeout=0.3)


def test_invalid_call_is_a_value_error(client):
    with pytest.raises(ValueError, match="names leaders"):
        client.put(b"spark_cas.kv/leader", b"1")
    with pytest.raises(ValueError, match="at most"):
        client.put(b"bad", b"x" * (MOST_BODY_BYTES + 1))
    for nodes in ([], ["localhost"], ["http://localhost:1"], ["localhost:70000"]):
        with pytest.raises(ValueError, match="host:port"):
            Client(nodes)


class Stranger(Wire):
    reply = b""

    def forwarded(self, request):
        return self.reply


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\n\r\nno",
    ],
    ids=["503", "200", "200 JSON", "200 of any length"],
)
def test_a_server_that_is_no_node_is_not_believed(nodes, key, reply):
    """Its response is not a node's: a proxy may report a failure or success that the node does not."""
    wire = Stranger(nodes[0].address)
    wire.reply = reply
    with pytest.raises(UnknownOutcomeError):
        Client([wire.address]).put(key, b"1")
    with pytest.raises(StorageError):
        Client([wire.address]).get(key, timeout=0.3)
    wire.close()
