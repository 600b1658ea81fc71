"""The preflight and `spark-cas doctor` on three brokers, and with one of them down."""

import gc
from dataclasses import replace

import pytest
from confluent_kafka.admin import NewTopic

from spark_cas.core.errors import StorageError
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from tests.kafka.clients import SECONDS, admin_of, create_topic, leader_of
from tests.kafka.open_transactions import Place
from tests.kafka.test_preflight import look, refusal, spec_of
from tests.support.planted_problems import only
from tools.kafka_broker.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


def test_one_in_sync_replica_is_noted_if_there_are_more(cluster):
    assert look(spec_of(cluster)).notes == ()
    (note,) = look(spec_of(cluster, min_insync_replicas="1")).notes
    assert "min.insync.replicas of topic" in note
    assert "is 1 with 3 replicas" in note


def impatient(spec: KafkaSpec) -> KafkaSpec:
    """Return the spec with a retry timeout of one second, because retries cannot succeed here."""
    return replace(spec, client_options=(("message.timeout.ms", "1000"),))


@pytest.fixture(scope="module")
def without_one(cluster):
    """A topic with too few replicas in sync, and a topic with a partition without a leader, while node 2 is down."""
    strict = create_topic(cluster.bootstrap, min_insync_replicas="3")
    alone = f"{strict}-alone"
    admin = admin_of(cluster.bootstrap)
    placed = NewTopic(alone, 2, replica_assignment=[[1], [2]], config={"min.insync.replicas": "1"})
    admin.create_topics([placed])[alone].result(SECONDS)
    specs = [KafkaSpec(cluster.bootstrap, each, each) for each in (strict, alone)]
    for each in specs:
        look(each)
    cluster.node(2).kill()
    try:
        wait_until(
            lambda: leader_of(cluster.node(1).address, alone, 1) < 0,
            SECONDS,
            lambda: "the partition still has a leader",
        )
        yield specs
    finally:
        cluster.node(2).restart()


def test_preflight_finds_the_missing_broker(without_one):
    strict, orphan = map(impatient, without_one)
    assert "partition 1 of topic" in refusal(orphan)
    assert "no leader" in refusal(orphan)
    assert "has 2 of 3 replicas in sync, and min.insync.replicas is 3" in refusal(strict)
    # The error must not report a missing topic, because a caller would then continue without its plans.
    with KafkaLog(orphan) as log, pytest.raises(StorageError, match="asking for offsets"):
        log.bounds(1)


# kafka-python leaves the socket of a refused connection to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_doctor_finds_the_missing_broker(without_one):
    strict, alone = without_one
    lagging, leaderless = Place(strict).report(), Place(alone).report()
    gc.collect()
    [found] = [
        each for each in lagging.problems["REPLICAS_OUT_OF_SYNC"] if each["subject"] == f"topic {strict.topic}"
    ]
    assert (lagging.code, found["severity"]) == (9, "error")
    assert only(leaderless.problems["NO_LEADER"])["details"]["partitions"] == [1]
