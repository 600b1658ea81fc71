"""Nodes that are killed, frozen or terminated: no acknowledged write is lost, and the other node takes over."""

import json
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event

import pytest

from key_value_store.http import Client
from key_value_store.http.wire import path_of_key
from spark_cas.core.errors import StorageError, UnknownOutcomeError
from tests.kafka.clients import create_topic
from tests.kv.http.servers import SECONDS, Served, ask, leader_of, serving
from tests.kv.nodes import keys_of
from tests.long import full
from tests.objects.bad_day import BUSY, BadDay, proxy_to
from tests.objects.servers import moto
from tools.kafka_broker.waiting import wait_until
from tools.ports import held_ports

KEY, *KEYS = keys_of(0, 5)


@pytest.fixture
def log(request, tmp_path):
    """The address of a log: in a directory, or on Kafka if the test is parametrized so."""
    if getattr(request, "param", None) != "kafka":
        return str(tmp_path / "log")
    broker = request.getfixturevalue("broker")
    return f"kafka://{broker.bootstrap}/{create_topic(broker.bootstrap, 2)}"


@pytest.fixture
def two(tmp_path, log):
    """Two nodes; the first one leads shard 0."""
    with serving(tmp_path, log=log) as nodes:
        client = Client([each.address for each in nodes])
        client.put(KEY, b"before", timeout=SECONDS)
        leader = leader_of(nodes, path_of_key(KEY))
        yield sorted(nodes, key=lambda node: node.address != leader)


def addresses(nodes):
    return [each.address for each in nodes]


class Writing:
    """Threads that write counters, each to its own key, and record the acknowledged values."""

    def __init__(self, nodes, keys=KEYS):
        self.acknowledged = dict.fromkeys(keys, 0)
        self.sent: dict[bytes, set[int]] = {key: set() for key in keys}
        self._client = Client(addresses(nodes))
        self.ending = Event()
        self._begun = [Event() for _ in keys]
        self._threads = ThreadPoolExecutor(len(keys))
        self._running = [self._threads.submit(self._write, *each) for each in zip(keys, self._begun, strict=True)]

    def wait_until_begun(self):
        assert all(each.wait(SECONDS) for each in self._begun)
        for each in self._begun:
            each.clear()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ending.set()  # before the nodes end, so that no thread waits for them
        for each in self._running:
            each.result(SECONDS)
        self._threads.shutdown()

    def _write(self, key, begun):
        number = 0
        while not self.ending.is_set():
            number += 1
            self.sent[key].add(number)
            try:
                self._client.put(key, b"%d" % number, timeout=SECONDS)
            except UnknownOutcomeError:
                continue
            except StorageError:
                assert self.ending.is_set()
            else:
                self.acknowledged[key] = number
                begun.set()

    def check(self, client):
        """Check that each key has a value that was sent, at or after the last acknowledged one."""
        for key, number in dict(self.acknowledged).items():
            found = int(client.get(key, timeout=SECONDS).value)
            assert found >= number
            assert found in self.sent[key]


@pytest.mark.parametrize(
    "log",
    [*full("directory"), pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.timeout(180)])],
    indirect=True,
)
def test_after_a_kill_the_other_node_has_all_acknowledged_writes(two, log):
    killed, other = two
    client = Client(addresses(two))
    version = client.put(KEY, b"1")
    back = None
    with Writing(two) as writing:
        try:
            writing.wait_until_begun()
            killed.kill()
            writing.wait_until_begun()
            writing.check(Client([other.address]))
            version = client.put(KEY, b"2", expected_version=version, timeout=SECONDS)
            back = Served.of(log, killed.output.parent, killed.address, addresses(two))
            back.wait_until_ready()
            other.kill()
            writing.wait_until_begun()
            assert client.put(KEY, b"3", expected_version=version, timeout=SECONDS) > version
            writing.check(Client([back.address]))
        finally:
            if back is not None:
                writing.ending.set()
                back.end()


def test_a_leader_that_is_frozen_is_deposed_and_answers_nothing_old_when_it_thaws(two):
    frozen, other = two
    client, path = Client([other.address]), path_of_key(KEY)
    frozen.signal(signal.SIGSTOP)
    wait_until(lambda: ask(other.address, "GET", path)[0] == 200, SECONDS, lambda: "no node took over")
    client.put(KEY, b"after", timeout=SECONDS)
    with pytest.raises(UnknownOutcomeError):
        Client([frozen.address]).put(KEY, b"late", timeout=0.5)
    with ThreadPoolExecutor(1) as threads:
        read = threads.submit(ask, frozen.address, "GET", path)
        frozen.signal(signal.SIGCONT)
        status, headers, _ = read.result(SECONDS)
    assert (status, headers["Location"]) == (307, f"http://{other.address}{path}")
    assert client.get(KEY).value in (b"after", b"late"), "the new leader may have applied the late write"
    for node, number in zip(two, (signal.SIGINT, signal.SIGTERM), strict=True):
        node.signal(number)
        assert node.process.wait(SECONDS) == 0
        assert "Traceback" not in node.said()


def test_node_ends_in_order_during_requests(two):
    with Writing(two) as writing:
        writing.wait_until_begun()
        two[0].signal(signal.SIGTERM)
        assert two[0].process.wait(SECONDS) == 0
        assert "Traceback" not in two[0].said()
        writing.wait_until_begun()
        writing.check(Client([two[1].address]))


@pytest.mark.s3
@pytest.mark.full
def test_requested_node_replaces_a_leader_that_cannot_use_its_log(tmp_path):
    with moto() as store, proxy_to(store.endpoint) as proxy, ExitStack() as ending:
        nodes, spec = [f"127.0.0.1:{port}" for port in ending.enter_context(held_ports(2))], store.spec()
        served = []
        for at, endpoint in enumerate((proxy.endpoint, store.endpoint)):
            options = dict(spec.store_options) | {"aws_endpoint": endpoint}
            more = ["--shards=2", *(f"--log-option=store.{name}={value}" for name, value in options.items())]
            # The first node does not know of another, so it leads.
            served.append(Served.of(spec.url, tmp_path / f"node-{at}", nodes[at], nodes[: at + 1], *more))
            ending.callback(served[-1].end)
            served[-1].wait_until_ready()
            Client(nodes[:1]).put(KEY, b"before", timeout=SECONDS)
        first, second = nodes
        assert ask(second, "GET", path_of_key(KEY))[0] == 307
        proxy.day = BadDay(BUSY, 10 * SECONDS, "PUT")
        with pytest.raises((StorageError, UnknownOutcomeError)):
            Client([first]).put(KEY, b"late", timeout=3)
        wait_until(lambda: health_of(first)["failing"] == [0], SECONDS, lambda: "the node reports no failure")
        Client([second]).put(KEY, b"after", timeout=SECONDS)
        assert ask(second, "GET", path_of_key(KEY))[0] == 200
        proxy.day = None
        assert Client([first]).get(KEY, timeout=SECONDS).value == b"after"
        wait_until(lambda: health_of(first)["failing"] == [], SECONDS, lambda: "the node still reports that it fails")


def health_of(address):
    return json.loads(ask(address, "GET", "/health")[2])
