"""`spark-cas doctor` while one of three brokers is down."""

import gc

import pytest
from confluent_kafka.admin import NewTopic

from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from tests.kafka.clients import SECONDS, admin_of, create_topic, leader_of
from tests.kafka.open_transactions import Place
from tests.support.planted_problems import only
from tools.kafka_broker.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


# kafka-python leaves the socket of a refused connection to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_missing_broker_is_found(cluster):
    strict = create_topic(cluster.bootstrap, min_insync_replicas="3")
    alone = f"{strict}-alone"
    admin = admin_of(cluster.bootstrap)
    placed = NewTopic(alone, 2, replica_assignment=[[1], [2]], config={"min.insync.replicas": "1"})
    admin.create_topics([placed])[alone].result(SECONDS)
    cluster.node(2).kill()
    try:
        wait_until(
            lambda: leader_of(cluster.node(1).address, alone, 1) < 0,
            SECONDS,
            lambda: "the partition still has a leader",
        )
        lagging = Place(KafkaSpec(cluster.bootstrap, strict, strict)).report()
        leaderless = Place(KafkaSpec(cluster.bootstrap, alone, alone)).report()
        gc.collect()
    finally:
        cluster.node(2).restart()
    [found] = [each for each in lagging.problems["REPLICAS_OUT_OF_SYNC"] if each["subject"] == f"topic {strict}"]
    assert (lagging.code, found["severity"]) == (9, "error")
    assert only(leaderless.problems["NO_LEADER"])["details"]["partitions"] == [1]
