"""The preflight of a topic on three brokers, and with one of them down."""

from dataclasses import replace

import pytest
from confluent_kafka.admin import NewTopic

from spark_cas.core.errors import StorageError
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from tests.kafka.clients import SECONDS, admin_of, leader_of
from tests.kafka.test_preflight import look, refusal, spec_of
from tools.kafka_broker.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]


def impatient(spec: KafkaSpec) -> KafkaSpec:
    """Return the spec with a retry timeout of one second, because retries cannot succeed here."""
    return replace(spec, client_options=(("message.timeout.ms", "1000"),))


def test_one_replica_in_sync_is_enough_only_where_there_is_but_one(cluster):
    assert look(spec_of(cluster)).notes == ()
    (note,) = look(spec_of(cluster, min_insync_replicas="1")).notes
    assert "min.insync.replicas of topic" in note
    assert "is 1 with 3 replicas" in note


def test_brokers_that_are_gone(cluster):
    strict = impatient(spec_of(cluster, min_insync_replicas="3"))
    alone = f"{strict.topic}-alone"
    admin = admin_of(cluster.bootstrap)
    placed = NewTopic(alone, 2, replica_assignment=[[1], [2]], config={"min.insync.replicas": "1"})
    admin.create_topics([placed])[alone].result(SECONDS)
    orphan = impatient(KafkaSpec(cluster.bootstrap, alone, alone))
    look(strict)
    look(orphan)
    cluster.node(2).kill()
    try:
        wait_until(
            lambda: leader_of(cluster.node(1).address, alone, 1) < 0,
            SECONDS,
            lambda: "the partition still has a leader",
        )
        assert "partition 1 of topic" in refusal(orphan)
        assert "no leader" in refusal(orphan)
        assert "has 2 of 3 replicas in sync, and min.insync.replicas is 3" in refusal(strict)
        # The error must not report a missing topic, because a caller would then continue without its plans.
        with KafkaLog(orphan) as log, pytest.raises(StorageError, match="asking for offsets"):
            log.bounds(1)
    finally:
        cluster.node(2).restart()
