"""The streaming source on a broker, in real queries."""

import time

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewPartitions, NewTopic

from spark_cas.core.errors import LogNotFoundError, OptionError, StorageError, TruncatedError
from spark_cas.options.parse import parse_read_stream
from spark_cas.spark.reading.stream_read import RecordsStreamReader
from spark_cas.spark.schema import RECORDS
from spark_cas.spark.versions import HAS_READ_LIMITS, ReadAllAvailable
from tests.kafka.clients import admin_of, create_topic
from tests.spark.streams import SECONDS, Stream

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300)]


def send(broker, topic, partition, *values):
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(60) == 0


def await_values(stream, query, expected):
    deadline = time.monotonic() + SECONDS
    while stream.values() != expected:
        assert query.isActive
        assert time.monotonic() < deadline, stream.values()
        query.processAllAvailable()


@pytest.mark.full
def test_an_open_transaction_holds_up_its_partition_alone(spark, broker, tmp_path):
    topic = create_topic(broker.bootstrap, 2)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    stream = Stream(spark, tmp_path / "query", **options)
    send(broker, topic, 0, "a")
    open_for = {"transactional.id": f"test/{topic}", "transaction.timeout.ms": SECONDS * 2000}
    theirs = Producer({"bootstrap.servers": broker.bootstrap, **open_for})
    theirs.init_transactions(60)
    theirs.begin_transaction()
    theirs.produce(topic, "open", partition=0)
    assert theirs.flush(60) == 0
    send(broker, topic, 0, "later")
    send(broker, topic, 1, "b")
    if HAS_READ_LIMITS:  # before 4.2, availableNow does not wait for open transactions
        assert "a transaction has been open" in stream.refused(StorageError, openTransactionWaitMs=1000)
    with stream.running() as query:
        await_values(stream, query, ["a", "b"])
        theirs.commit_transaction(60)
        await_values(stream, query, ["a", "b", "later", "open"])
    send(broker, topic, 1, "c")
    assert stream.run() == [1]
    assert stream.values() == ["a", "b", "c", "later", "open"]


def test_with_isolation_load_nothing_is_new_until_all_of_it_is_decided(broker, caplog):
    """Call the readers as Spark's planner does. Without isolation=load, only partition 0 waits."""
    topic = create_topic(broker.bootstrap, 2)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingoffsets": "earliest"}
    more = {"isolation": "load", "opentransactionwaitms": "500"}
    isolated, other = (RecordsStreamReader(parse_read_stream({**options, **each}), RECORDS) for each in (more, {}))
    start = isolated.initialOffset()
    theirs = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"test/{topic}"})
    theirs.init_transactions(60)
    theirs.begin_transaction()
    theirs.produce(topic, "open", partition=0)
    assert theirs.flush(60) == 0
    send(broker, topic, 1, "b")
    try:
        assert isolated.latestOffset(start, ReadAllAvailable()) == start
        assert "nothing new is read for now, with isolation=load: partition 0" in caplog.text
        assert other.latestOffset(start, ReadAllAvailable())[topic]["offsets"] == {"0": 0, "1": 1}
        theirs.commit_transaction(60)
        end = isolated.latestOffset(start, ReadAllAvailable())
        assert end[topic]["offsets"] == {"0": 2, "1": 1}
        assert isolated.latestOffset(end, ReadAllAvailable()) == end
    finally:
        isolated.stop()
        other.stop()


def test_new_partitions_new_topics_and_recreated_topics_are_detected(spark, broker, tmp_path):
    topic = create_topic(broker.bootstrap)
    admin = admin_of(broker.bootstrap)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribePattern": f"{topic}.*"}
    stream = Stream(spark, tmp_path / "query", startingOffsets="earliest", **options)
    send(broker, topic, 0, "a")
    with stream.running() as query:
        await_values(stream, query, ["a"])
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(60)
        admin.create_topics([NewTopic(f"{topic}-more", 1)])[f"{topic}-more"].result(60)
        send(broker, topic, 1, "b")
        send(broker, f"{topic}-more", 0, "c")
        await_values(stream, query, ["a", "b", "c"])
    assert stream.run() == []
    last = stream.offsets()[-1]
    assert (last[topic]["layout_epoch"], last[topic]["offsets"]) == (2, {"0": 1, "1": 1})
    assert last[f"{topic}-more"]["offsets"] == {"0": 1}
    admin.delete_topics([topic])[topic].result(60)
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            admin.create_topics([NewTopic(topic, 2)])[topic].result(60)
            break
        except KafkaException:
            assert time.monotonic() < deadline
    send(broker, topic, 0, "d", "e")
    assert f"topic {topic} was deleted and recreated" in stream.refused(TruncatedError)
    assert stream.values() == ["a", "b", "c"]


@pytest.mark.full
def test_a_stream_continues_with_fewer_topics_if_that_is_allowed(spark, broker, tmp_path):
    kept, dropped = (create_topic(broker.bootstrap) for _ in range(2))
    options = {"kafka.bootstrap.servers": broker.bootstrap, "startingOffsets": "earliest"}
    stream = Stream(spark, tmp_path / "query", **options)
    send(broker, kept, 0, "a")
    send(broker, dropped, 0, "b")
    assert stream.run(subscribe=f"{kept},{dropped}") == [2]
    send(broker, kept, 0, "c")
    send(broker, dropped, 0, "d")
    stream.refused(OptionError, subscribe=kept)
    stream.refused(OptionError, subscribe=kept, failOnDataLoss="false")
    assert stream.run(subscribe=kept, allowUnsubscribedTopics="true") == [1]
    assert stream.values() == ["a", "b", "c"]
    assert stream.run(subscribe=f"{kept},{dropped}") == [1]
    assert stream.values() == ["a", "b", "c", "d"]
    admin = admin_of(broker.bootstrap)
    admin.delete_topics([kept])[kept].result(60)
    both = f"{kept}|{dropped}"
    stream.refused(LogNotFoundError, subscribePattern=both, allowUnsubscribedTopics="true")


@pytest.mark.full
def test_stream_of_1000_partitions_resumes(spark, broker, tmp_path):
    topic = create_topic(broker.bootstrap, 1000)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    stream = Stream(spark, tmp_path / "query", **options)
    send(broker, topic, 0, "a", "b")
    send(broker, topic, 999, "c")
    assert stream.run() == [3]
    send(broker, topic, 500, "d", "e")
    send(broker, topic, 999, "f")
    assert stream.run() == [3]
    assert stream.run() == []
    assert stream.values() == [*"abcdef"]
    ends = stream.offsets()[-1][topic]["offsets"]
    assert len(ends) == 1000
    assert {partition: end for partition, end in ends.items() if end} == {"0": 2, "500": 2, "999": 2}
