"""Transactions that the brokers cannot coordinate, and those whose coordinator is temporarily unavailable."""

import time
from threading import Timer

import pytest

from spark_cas.core.errors import StorageError
from spark_cas.core.guarantee import EXACTLY_ONCE, IDEMPOTENT, REQUESTED, REQUIRED
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.client.client_errors import NotAvailableError
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from tests.contract.blind import run_blind
from tests.kafka.clients import append, committed_values, create_topic
from tests.kafka.faulted import spec_of
from tests.kafka.secured import secured_broker
from tests.kafka.test_acls import least
from tests.long import full
from tests.support.loads import TEN, run_job
from tools.kafka_broker import KafkaBroker, KafkaCluster
from tools.kafka_broker.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

SECONDS = 15
SETTINGS = {
    "__transaction_state": "transaction.state.log.replication.factor",
    "__consumer_offsets": "offsets.topic.replication.factor",
}


@pytest.fixture(scope="module", params=[SETTINGS["__transaction_state"], *full(SETTINGS["__consumer_offsets"])])
def alone(request, conf):
    """One broker with an internal topic that needs three, and the name of the setting for that."""
    with KafkaBroker(conf, settings={request.param: "3"}) as broker:
        yield broker, request.param


def spec_on(broker) -> KafkaSpec:
    topic = create_topic(broker.bootstrap)
    return KafkaSpec(broker.bootstrap, topic, topic)


def test_too_few_brokers_for_an_internal_topic_are_reported_soon(alone):
    broker, setting = alone
    began = time.monotonic()
    with KafkaLog(spec_on(broker)) as log, pytest.raises(NotAvailableError) as refused:
        log.preflight(idempotence=REQUIRED)
    assert time.monotonic() - began < SECONDS
    assert setting in refused.value.message
    assert "1 broker " in refused.value.message


def test_too_few_brokers_are_reported_to_a_job_without_preflight(alone):
    broker, setting = alone
    began = time.monotonic()
    with KafkaLog(spec_on(broker)) as log, pytest.raises(StorageError, match=setting):
        run_job(log, "job", TEN)
    assert time.monotonic() - began < SECONDS


def test_requested_idempotence_continues_without_transactions(alone):
    broker, setting = alone
    spec = spec_on(broker)
    began = time.monotonic()
    with KafkaLog(spec) as log:
        found = log.preflight(idempotence=REQUESTED)
        run_blind(log, TEN, found.guarantee)
    assert time.monotonic() - began < SECONDS
    assert found.guarantee == IDEMPOTENT
    assert [note for note in found.notes if setting in note]
    assert len(committed_values(broker.bootstrap, spec.topic)) == len(TEN[0])


def test_a_coordinator_that_is_away_is_waited_for_and_nothing_is_downgraded(broker):
    topic = create_topic(broker.bootstrap)
    append(broker.bootstrap, topic, "a")  # both internal topics exist
    with KafkaLog(spec_of(broker.bootstrap, topic)) as log:
        log.layout()
        broker.freeze()
        back = Timer(5, broker.thaw)
        back.start()
        try:
            assert log.preflight(idempotence=REQUESTED).guarantee == EXACTLY_ONCE
        finally:
            back.join()
            broker.node(1).wait_until_alive()


@pytest.mark.full
def test_a_registered_broker_that_is_away_counts(conf):
    """While an internal topic does not exist, the replicas of other topics show that the broker is registered."""
    settings = {SETTINGS["__transaction_state"]: "3"}
    with KafkaCluster(conf, 3, settings=settings) as cluster:
        topic = create_topic(cluster.bootstrap)
        spec = spec_of(cluster.bootstrap, topic)
        cluster.node(3).kill()
        wait_until(lambda: 3 not in cluster.node(1).known().alive, SECONDS, lambda: "node 3 is still alive")
        with KafkaLog(spec) as log:
            back = Timer(12, cluster.node(3).begin_start)
            back.start()
            try:
                assert log.preflight(idempotence=REQUESTED).guarantee == EXACTLY_ONCE
            finally:
                back.join()


def test_without_the_right_to_see_the_cause_the_deadline_holds_and_nothing_is_downgraded(conf, tmp_path):
    """The error names the settings to check, because the user can see neither the topic nor the settings."""
    with secured_broker(conf, tmp_path, **{SETTINGS["__transaction_state"]: "3"}) as secured:
        topic = create_topic(secured.open)
        spec = secured.spec(topic, **{"request.timeout.ms": "1500", "delivery.timeout.ms": "6000"})
        secured.allow(least(topic, topic).values())
        with KafkaLog(spec) as log, pytest.raises(StorageError) as failed:
            log.preflight(idempotence=REQUESTED)
    assert not isinstance(failed.value, NotAvailableError)
    assert all(name in failed.value.message for name in SETTINGS.values())
