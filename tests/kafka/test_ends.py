"""End offsets of partitions: the client requests them only when it knows the leaders."""

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from spark_cas.core.errors import LogNotFoundError
from spark_cas.log.kafka.client import admin as admin_module
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.client_errors import NO_LEADER
from spark_cas.log.kafka.client.clients import admin_client
from spark_cas.log.kafka.client.own_threads import SafeAdminClient
from spark_cas.log.kafka.offsets import end_offsets
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from tests.kafka.clients import SECONDS, admin_of, append, create_topic
from tools.kafka_broker.waiting import wait_until

pytestmark = pytest.mark.kafka


@pytest.fixture
def asked(monkeypatch):
    """The requests to the brokers, in order."""
    made = []

    class Noted(SafeAdminClient):
        def list_topics(self, *given, **more):
            made.append("list_topics")
            return super().list_topics(*given, **more)

        def list_offsets(self, *given, **more):
            made.append("list_offsets")
            return super().list_offsets(*given, **more)

    monkeypatch.setattr(admin_module, "SafeAdminClient", Noted)
    return made


def test_offsets_are_not_requested_without_known_leaders(broker, asked):
    topic = create_topic(broker.bootstrap, 2)
    append(broker.bootstrap, topic, "a", "b")
    admin = admin_client(KafkaSpec(broker.bootstrap, topic))
    first, second = (TopicPartition(topic, number) for number in range(2))
    assert end_offsets.stable_bounds(admin, first).end_offset == 3
    assert asked == ["list_topics", "list_offsets", "list_offsets"]
    asked.clear()
    assert end_offsets.high_watermark(admin, second) == 0
    assert asked == ["list_offsets"]


def test_transaction_committed_between_two_reads_is_in_all_bounds(broker, monkeypatch):
    topic = create_topic(broker.bootstrap, 2)
    admin = admin_client(KafkaSpec(broker.bootstrap, topic))
    ats = [TopicPartition(topic, number) for number in range(2)]
    barriers = end_offsets.barriers
    committed: list[str] = []

    def one_after_the_other(admin, ats, timeout_seconds):
        first = barriers(admin, ats[:1], timeout_seconds)
        if not committed:
            committed.append(commit_to_both(broker.bootstrap, topic))
        return (*first, *barriers(admin, ats[1:], timeout_seconds))

    monkeypatch.setattr(end_offsets, "barriers", one_after_the_other)
    found = end_offsets.stable_ends(admin, ats, SECONDS)
    assert found
    assert [each.end_offset for each in found] == [2, 2], "a record and its marker"


def commit_to_both(address, topic):
    producer = Producer({"bootstrap.servers": address, "transactional.id": f"{topic}-both"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    for partition in range(2):
        producer.produce(topic, "both", partition=partition)
    producer.commit_transaction(SECONDS)
    return topic


def test_newest_time_is_requested_from_known_leaders(broker, asked):
    topic = create_topic(broker.bootstrap)
    admin = admin_client(KafkaSpec(broker.bootstrap, topic))
    assert end_offsets.newest_ms(admin, TopicPartition(topic, 0)) == -1
    assert asked == ["list_topics", "list_offsets"]


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        NO_LEADER,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    ],
)
def test_leaders_are_requested_again_after_an_error(broker, asked, monkeypatch, code):
    """A failover or a new partition causes these errors. The test cannot cause them, so it raises them."""
    topic = create_topic(broker.bootstrap)
    at, admin = TopicPartition(topic, 0), admin_client(KafkaSpec(broker.bootstrap, topic))
    assert end_offsets.high_watermark(admin, at) == 0
    asked.clear()
    answer = Admin.answer

    def failing_once(admin, question):
        monkeypatch.setattr(Admin, "answer", answer)
        answer(admin, question)
        raise KafkaException(KafkaError(code))

    monkeypatch.setattr(Admin, "answer", failing_once)
    assert end_offsets.high_watermark(admin, at) == 0
    assert asked == ["list_offsets", "list_topics", "list_offsets"]


def test_a_topic_that_is_not_there_has_no_offsets_to_ask_for(broker, asked):
    admin = admin_client(KafkaSpec(broker.bootstrap, "nowhere"))
    with pytest.raises(LogNotFoundError):
        end_offsets.barrier(admin, TopicPartition("nowhere", 0), 10.0)
    assert asked == ["list_topics"]


def test_a_topic_that_was_deleted_since_is_not_there(broker):
    topic = create_topic(broker.bootstrap)
    at, admin = TopicPartition(topic, 0), admin_client(KafkaSpec(broker.bootstrap, topic))
    assert end_offsets.high_watermark(admin, at) == 0
    operator = admin_of(broker.bootstrap)
    operator.delete_topics([topic])[topic].result(SECONDS)
    wait_until(lambda: _is_gone(admin, at), SECONDS, lambda: "the broker still reports the topic")


def _is_gone(admin, at):
    try:
        end_offsets.high_watermark(admin, at)
    except LogNotFoundError:
        return True
    return False
