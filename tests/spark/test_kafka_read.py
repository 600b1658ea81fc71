"""Reads of topics through Spark: records of any producer, the views, ranges of offsets."""

import datetime as dt
import json

import pytest
from chispa import assert_df_equality
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

from spark_cas import error_from_text, open_log
from spark_cas.core.errors import LogNotFoundError, OptionError, TrimmedError
from spark_cas.core.outcome import Appended
from spark_cas.log.load.append_once import append_once
from spark_cas.spark import schema as columns
from tests.kafka.clients import admin_of, create_topic
from tests.support.writing import table_of

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300)]

TIME_MS = 1_589_718_600_250
TIME = dt.datetime.fromtimestamp(TIME_MS / 1000, dt.UTC)


@pytest.fixture(scope="module")
def topic(broker):
    """Partition 0 holds five committed records, three aborted ones, and one of an ordinary producer."""
    name = create_topic(broker.bootstrap, 2)
    in_transactions = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"test/{name}"})
    in_transactions.init_transactions(60)
    for keys, end in ((range(5), in_transactions.commit_transaction), (range(3), in_transactions.abort_transaction)):
        in_transactions.begin_transaction()
        for key in keys:
            in_transactions.produce(name, f"v{key}", f"{key}", partition=0, timestamp=TIME_MS)
        assert in_transactions.flush(60) == 0
        end(60)
    ordinary = Producer({"bootstrap.servers": broker.bootstrap})
    ordinary.produce(name, None, None, partition=0, timestamp=TIME_MS, headers=[("h", b"1"), ("i", None)])
    assert ordinary.flush(60) == 0
    return name


@pytest.fixture
def reader(spark, broker, topic):
    def reader(**options):
        given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **options}
        return spark.read.format("conditional-log").options(**given)

    return reader


def refused(kind, read):
    with pytest.raises(PySparkException) as caught:
        read()
    error = error_from_text(str(caught.value))
    assert error is not None
    assert type(error) is kind, str(caught.value)
    return error.message


def offsets_of(df):
    return sorted(row.offset for row in df.select("offset").collect())


def test_records_have_the_columns_of_the_kafka_source(spark, reader, topic):
    read = reader().load()
    assert read.schema == columns.RECORDS
    rows = [(b"%d" % n, b"v%d" % n, topic, 0, n, TIME, 0) for n in range(5)]
    expected = spark.createDataFrame([*rows, (None, None, topic, 0, 10, TIME, 0)], columns.RECORDS)
    assert_df_equality(read.orderBy("offset"), expected)


def test_headers_and_a_schema_of_fewer_columns(reader):
    (row,) = reader(includeHeaders="true").load().where("headers IS NOT NULL").collect()
    assert [header.asDict() for header in row.headers] == [{"key": "h", "value": b"1"}, {"key": "i", "value": None}]
    few = reader().schema("offset bigint, key binary").load()
    assert few.columns == ["offset", "key"]
    assert [row.key for row in few.orderBy("offset").collect()] == [b"0", b"1", b"2", b"3", b"4", None]


def limits(topic, first, second=-1):
    return json.dumps({topic: {"0": first, "1": second}})


def test_a_range_of_offsets(reader, topic):
    assert offsets_of(reader(startingOffsets=limits(topic, 3)).load()) == [3, 4, 10]
    assert offsets_of(reader(startingOffsets=limits(topic, 5), endingOffsets=limits(topic, 10)).load()) == []
    assert offsets_of(reader(endingOffsets=limits(topic, 2)).load()) == [0, 1]
    assert offsets_of(reader(startingOffsets="latest").load()) == []
    assert "which ends at 11" in refused(OptionError, reader(startingOffsets=limits(topic, 99)).load().collect)
    assert topic in refused(OptionError, reader(startingOffsets=limits("other", 0)).load().collect)


def test_several_topics_are_one_relation(spark, broker, reader, topic):
    names = sorted([topic, *(f"{topic}-more-{n}" for n in range(2))])
    admin = admin_of(broker.bootstrap)  # keep a reference: its futures fail without it
    for name in names[1:]:
        admin.create_topics([NewTopic(name, 1)])[name].result(60)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(4):
        producer.produce(names[1], f"{n}", partition=0, timestamp=TIME_MS + n)
    assert producer.flush(60) == 0

    def found(**options):
        read = spark.read.format("conditional-log").option("kafka.bootstrap.servers", broker.bootstrap)
        rows = read.options(**options).load().select("topic", "partition", "offset").collect()
        return sorted((names.index(row.topic), row.offset) for row in rows)

    first, second = [(0, offset) for offset in (0, 1, 2, 3, 4, 10)], [(1, offset) for offset in range(4)]
    assert found(subscribe=",".join(names)) == first + second
    assert found(subscribePattern=f"{topic}.*") == first + second
    assert found(subscribePattern=f"{topic}-more-.") == second
    assert found(subscribePattern=f"{topic}-mor") == []
    assigned = {"assign": json.dumps({names[0]: [1], names[1]: [0]})}
    assert found(**assigned) == second
    starts = {names[0]: {"1": -1}, names[1]: {"0": 2}}
    assert found(**assigned, startingOffsets=json.dumps(starts)) == second[2:]
    late = {"startingTimestamp": str(TIME_MS + 3), "startingOffsetsByTimestampStrategy": "latest"}
    assert found(**assigned, **late) == second[3:]
    assert found(**assigned, endingTimestamp=str(TIME_MS + 2)) == second[:2]
    assert found(**assigned, minPartitions="3", maxRecordsPerPartition="1") == second
    assert "names topic" in refused(
        OptionError, lambda: found(subscribe=names[1], startingOffsets=json.dumps(starts))
    )
    views = reader(subscribe=",".join(names), view="offsets").load()
    ends = views.select("topic", "partition", "start_offset", "end_offset").orderBy("topic", "partition")
    assert [tuple(row) for row in ends.collect()] == [
        (names[0], 0, 0, 11),
        (names[0], 1, 0, 0),
        (names[1], 0, 0, 4),
        (names[2], 0, 0, 0),
    ]


def test_views_describe_a_topic(spark, broker, reader, topic):
    (first, second) = reader(view="offsets").load().orderBy("partition").collect()
    assert first[:5] == (topic, 0, 0, 11, 2)
    assert second[:5] == (topic, 1, 0, 0, 2)
    assert first.log_id == second.log_id != ""
    assert reader(view="progress").load().collect() == []
    with open_log(f"kafka://{broker.bootstrap}/{topic}") as log:
        outcome = append_once(log, 1, table_of(["a", "b"]), job=f"job-{topic}", expected_offset=0)
    assert isinstance(outcome, Appended)
    (row,) = reader(view="progress").load().collect()
    assert (row.job, row.topic, row.partition, row.rows, row.complete) == (f"job-{topic}", topic, 1, 2, True)


def test_removed_records_are_an_error(broker, reader):
    name = create_topic(broker.bootstrap, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in range(4):
        producer.produce(name, str(value), partition=0)
    assert producer.flush(60) == 0
    admin = admin_of(broker.bootstrap)  # keep a reference: its futures fail without it
    next(iter(admin.delete_records([TopicPartition(name, 0, 2)]).values())).result(60)
    from_the_start = {"subscribe": name, "startingOffsets": json.dumps({name: {"0": 0}})}
    assert "offsets 0 to 1" in refused(TrimmedError, reader(**from_the_start).load().collect)
    assert offsets_of(reader(**from_the_start, failOnDataLoss="false").load()) == [2, 3]
    assert offsets_of(reader(subscribe=name).load()) == [2, 3]


def test_a_topic_that_is_not_there(reader):
    assert "no-such-topic" in refused(LogNotFoundError, reader(subscribe="no-such-topic").load().collect)


def test_options_of_sparks_source_that_have_no_effect_change_nothing(reader):
    given = {
        "groupIdPrefix": "team",
        "kafkaConsumer.pollTimeoutMs": "512",
        "fetchOffset.numRetries": "1",
        "kafka.group.id": "team-a",
        "kafka.max.poll.records": "1",
        "kafka.session.timeout.ms": "10",
        "kafka.isolation.level": "read_committed",
    }
    assert offsets_of(reader(**given).load()) == offsets_of(reader().load())


def test_many_small_partitions_are_read_by_few_tasks(reader, broker):
    partitions = 96
    topic = create_topic(broker.bootstrap, partitions)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition in range(partitions):
        for number in range(partition % 3):
            producer.produce(topic, f"{number}", partition=partition)
    assert producer.flush(60) == 0
    read = reader(subscribe=topic).load().select("partition", "offset", "value")
    found = sorted(read.withColumn("task", sf.spark_partition_id()).collect())
    with_records = [each for each in range(partitions) if each % 3]
    assert found == [
        (each, n, b"%d" % n, task // 2) for task, each in enumerate(with_records) for n in range(each % 3)
    ]
    tasks = reader(subscribe=topic, minpartitions="1").load().select(sf.spark_partition_id()).distinct().count()
    assert tasks == sum(each % 3 > 0 for each in range(partitions))
