"""Option commitGroup: the offsets of finished micro-batches in a consumer group, which never move the query."""

import subprocess

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition

from spark_cas import open_log
from spark_cas.core.errors import OptionError
from spark_cas.options.parse import parse_read_stream
from spark_cas.spark.reading.stream_read import RecordsStreamReader
from spark_cas.spark.schema import RECORDS
from spark_cas.spark.versions import ReadAllAvailable
from tests.kafka.clients import SECONDS, admin_of, create_topic
from tests.spark.streams import Stream
from tests.support.writing import append_foreign
from tools.kafka_broker.jars import java, kafka_jars, tools_jars

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300)]


def send(broker, topic, partition, *values):
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(SECONDS) == 0


def committed(broker, group):
    """Return the committed offset of each partition, as tools for lag read it."""
    admin = admin_of(broker.bootstrap)
    [answer] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {(each.topic, each.partition): each.offset for each in answer.result(SECONDS).topic_partitions}


def ends(broker, topic):
    from confluent_kafka.admin import OffsetSpec

    admin = admin_of(broker.bootstrap)
    asked = {TopicPartition(topic, each): OffsetSpec.latest() for each in (0, 1)}
    return {(at.topic, at.partition): each.result(SECONDS).offset for at, each in admin.list_offsets(asked).items()}


def test_offsets_of_a_finished_query_are_committed_and_never_used(spark, broker, tmp_path):
    topic = create_topic(broker.bootstrap, 2)
    group = f"lag-of-{topic}"
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    options |= {"commitGroup": group, "maxOffsetsPerTrigger": "2"}
    send(broker, topic, 0, "a", "b", "c")
    send(broker, topic, 1, "d")
    stream = Stream(spark, tmp_path / "one", **options)
    assert sum(stream.run()) == 4
    assert committed(broker, group) == ends(broker, topic) == {(topic, 0): 3, (topic, 1): 1}
    send(broker, topic, 1, "e")
    assert stream.run() == [1]
    assert committed(broker, group) == ends(broker, topic)
    other = Stream(spark, tmp_path / "two", **options)
    assert sum(other.run()) == 5
    assert stream.values() == other.values() == list("abcde")


def described(broker, group):
    """Return the committed offset, the end offset and the lag of each partition, from `kafka-consumer-groups.sh`."""
    command = [java(), "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_jars()}/*:{tools_jars()}/*"]
    command += ["org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server", broker.bootstrap]
    command += ["--describe", "--group", group]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    header, *rows = [line.split() for line in ended.stdout.splitlines() if line]
    columns = [header.index(name) for name in ("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")]
    return {
        int(partition): tuple(map(int, each)) for partition, *each in ([row[at] for at in columns] for row in rows)
    }


def test_kafkas_tool_reports_the_lag(spark, broker, tmp_path):
    """The query commits the offset after the marker of the last transaction, so the lag is 0 after its last batch."""
    topic = create_topic(broker.bootstrap, 2)
    group = f"lag-of-{topic}"
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    stream = Stream(spark, tmp_path, **options, commitGroup=group)
    with open_log(f"kafka://{broker.bootstrap}/{topic}") as log:
        first = append_foreign(log, 0, *"abc").range.end_offset
        assert sum(stream.run()) == 3
        assert described(broker, group) == {0: (first, first, 0), 1: (0, 0, 0)}
        second = append_foreign(log, 0, *"de").range.end_offset
        send(broker, topic, 1, *"fghi")
        assert described(broker, group) == {0: (first, second, second - first), 1: (0, 4, 4)}
        assert sum(stream.run()) == 6
        assert described(broker, group) == {0: (second, second, 0), 1: (4, 4, 0)}


def reader_of(broker, topic, **options):
    named = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingoffsets": "earliest"}
    return RecordsStreamReader(parse_read_stream({**named, **options}), RECORDS)


def test_offsets_are_committed_after_their_batch(broker):
    """Call the reader as Spark's planner does."""
    topic = create_topic(broker.bootstrap, 2)
    send(broker, topic, 0, "a", "b")
    reader = reader_of(broker, topic, commitgroup=f"lag-of-{topic}")
    try:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        assert committed(broker, f"lag-of-{topic}") == {}
        assert reader.latestOffset(end, ReadAllAvailable()) == end
        assert committed(broker, f"lag-of-{topic}") == {(topic, 0): 2, (topic, 1): 0}
    finally:
        reader.stop()


def test_failed_commit_is_one_warning_until_a_commit_succeeds(broker, caplog):
    """An active member of the group keeps other clients from committing."""
    from confluent_kafka import Consumer

    topic = create_topic(broker.bootstrap, 2)
    group = f"lag-of-{topic}"
    send(broker, topic, 0, "a")
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    member = Consumer({**settings, "enable.auto.commit": False})
    member.subscribe([topic])
    assert member.poll(SECONDS) is not None
    reader = reader_of(broker, topic, commitgroup=group)
    try:
        end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        for _ in range(2):
            assert reader.latestOffset(end, ReadAllAvailable()) == end
        assert [record.name for record in caplog.records if "commitGroup" in record.getMessage()] == ["spark_cas"]
        assert committed(broker, group) == {}
        member.close()
        reader.commit(end)
        assert committed(broker, group) == {(topic, 0): 1, (topic, 1): 0}
    finally:
        reader.stop()


def test_deleted_topic_does_not_stop_the_commits_of_others(broker, caplog):
    """The reader commits the topics in the order of their names."""
    deleted, kept = sorted(create_topic(broker.bootstrap, 2) for _ in range(2))
    send(broker, kept, 0, "a")
    reader = reader_of(broker, f"{deleted},{kept}", commitgroup=f"lag-of-{kept}", failondataloss="false")
    try:
        end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        admin = admin_of(broker.bootstrap)
        admin.delete_topics([deleted])[deleted].result(SECONDS)
        reader.commit(end)
        group = committed(broker, f"lag-of-{kept}")
        assert {at: group[at] for at in group if at[0] == kept} == {(kept, 0): 1, (kept, 1): 0}
    finally:
        reader.stop()


def test_group_of_the_ledger_and_logs_without_groups_are_rejected(path):
    with pytest.raises(OptionError, match="idPrefix"):
        parse_read_stream({"path": "kafka://host:9092/flights", "commitGroup": "spark-cas/flights"})
    with pytest.raises(OptionError, match="commitGroup"):
        parse_read_stream({"path": path, "commitGroup": "lag"})
