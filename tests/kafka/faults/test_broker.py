"""The test brokers themselves: they keep committed records, stop and resume on request, and leave nothing running."""

import os
import socket
import subprocess
import sys

import pytest
from confluent_kafka.admin import ConfigResource

from tests.kafka.clients import SECONDS, admin_of, append, committed_values, create_topic, leader_of
from tools.kafka_broker import KafkaBroker, KafkaNode
from tools.kafka_broker.metadata import known_to
from tools.kafka_broker.waiting import BrokerFailedError, wait_until
from tools.ports import HOST, held_ports

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def test_readers_see_committed_records_and_no_aborted_ones(broker, topic):
    assert append(broker.bootstrap, topic, "a", "b") == [0, 1]
    assert append(broker.bootstrap, topic, "x", commit=False) == [3]  # offset 2 is a commit marker
    assert append(broker.bootstrap, topic, "c") == [5]
    assert committed_values(broker.bootstrap, topic) == ["a", "b", "c"]


@pytest.mark.parametrize("topic", [3], indirect=True)
def test_topic_has_the_requested_partitions(broker, topic):
    assert len(admin_of(broker.bootstrap).list_topics(topic, SECONDS).topics[topic].partitions) == 3


def test_topics_are_not_created_by_requests(broker):
    assert admin_of(broker.bootstrap).list_topics("misspelt", SECONDS).topics["misspelt"].error is not None
    assert "misspelt" not in admin_of(broker.bootstrap).list_topics(timeout=SECONDS).topics


@pytest.mark.full
@pytest.mark.parametrize("end", [KafkaNode.kill, KafkaNode.stop])
def test_committed_records_survive_the_process(broker, topic, end):
    append(broker.bootstrap, topic, "a", "b")
    before, address = broker.node(1).pid, broker.bootstrap
    end(broker.node(1))
    assert not broker.node(1).is_running
    assert not is_alive(before)
    broker.restart()
    assert broker.bootstrap == address
    assert broker.node(1).pid != before
    append(broker.bootstrap, topic, "c")
    assert committed_values(broker.bootstrap, topic) == ["a", "b", "c"]


def test_a_frozen_broker_answers_nothing_until_it_thaws(broker):
    port = port_of(broker.bootstrap)
    broker.freeze()
    try:
        assert broker.node(1).is_running
        assert known_to(port, timeout_seconds=1).alive == frozenset()
    finally:
        broker.thaw()
    wait_until(lambda: known_to(port, 1).alive == {1}, SECONDS, lambda: "the broker did not thaw")


@pytest.mark.full
def test_a_cluster_outlives_the_leader_of_a_partition(cluster):
    topic = create_topic(cluster.bootstrap)
    append(cluster.bootstrap, topic, "a")
    leader = leader_of(cluster.bootstrap, topic)
    cluster.node(leader).kill()
    try:
        wait_until(lambda: leader_of(cluster.bootstrap, topic) not in {leader, -1}, SECONDS, lambda: "no new leader")
        append(cluster.bootstrap, topic, "b")
        assert committed_values(cluster.bootstrap, topic) == ["a", "b"]
    finally:
        cluster.node(leader).restart()
    everyone = {node.id for node in cluster.nodes}
    for node in cluster.nodes:
        node.wait_until_alive(frozenset(everyone))
    assert committed_values(cluster.bootstrap, topic) == ["a", "b"]


def test_proxied_broker_leaves_nothing(conf):
    settings = {"message.max.bytes": "4321"}
    with held_ports(1) as [advertised], KafkaBroker(conf, settings=settings, advertised_port=advertised) as broker:
        pid, folder = broker.node(1).pid, broker.folder
        assert (folder / "node-1" / "pid").read_text() == str(pid)  # the cleanup process reads the pid there
        topic = create_topic(broker.bootstrap)
        told = admin_of(broker.proxied_address).list_topics(topic, SECONDS).brokers[1]
        assert told.port == advertised
        told = admin_of(broker.bootstrap).list_topics(topic, SECONDS).brokers[1]
        assert told.port == port_of(broker.bootstrap)
        of_broker = ConfigResource(ConfigResource.Type.BROKER, "1")
        admin = admin_of(broker.bootstrap)
        config = admin.describe_configs([of_broker])[of_broker].result(SECONDS)
        assert config["message.max.bytes"].value == "4321"
    assert not is_alive(pid)
    assert not folder.exists()


@pytest.mark.full
def test_a_node_that_is_down_keeps_its_port(conf):
    with KafkaBroker(conf) as broker:
        broker.kill()
        with socket.socket() as another, pytest.raises(OSError, match="in use"):
            another.bind((HOST, port_of(broker.bootstrap)))
        broker.restart()


def test_killed_process_leaves_nothing(tmp_path):
    folder = tmp_path / "cluster"
    (folder / "node-1").mkdir(parents=True)
    program = """
import subprocess, sys
from pathlib import Path
from tools.kafka_broker.keeper import Keeper
folder = Path(sys.argv[1])
keeper = Keeper(folder)
node = subprocess.Popen(["sleep", "300"], stdout=subprocess.DEVNULL)
(folder / "node-1" / "pid").write_text(str(node.pid))
print(node.pid, flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", program, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as user:
        assert user.stdout is not None
        pid = int(user.stdout.readline())
        assert is_alive(pid)
        user.kill()
    wait_until(lambda: not is_alive(pid), SECONDS, lambda: f"the node {pid} is still there")
    wait_until(lambda: not folder.exists(), SECONDS, lambda: f"{folder} is still there")


def test_broker_that_cannot_start_reports_why_and_leaves_nothing(conf):
    broker = KafkaBroker(conf, settings={"transaction.state.log.num.partitions": "many"})
    with pytest.raises(BrokerFailedError, match="many"), broker:
        pass
    assert not broker.node(1).is_running
    with pytest.raises(ValueError, match="not started"):
        _ = broker.folder
