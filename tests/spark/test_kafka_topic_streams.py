"""Micro-batches that `foreachBatch` writes to the topics in their column `topic`, each exactly once in each topic."""

import json
from functools import partial

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

from spark_cas import open_log, route
from spark_cas.core.errors import (
    CheckpointMismatchError,
    ConflictError,
    InputChangedError,
    JobMismatchError,
    OptionError,
)
from spark_cas.log.load.planning import job_progress
from spark_cas.spark.source import ConditionalLogSource
from spark_cas.spark.writing.topics_write import TopicsWriter
from tests.spark.sinks import FORMAT, Source, finish
from tests.spark.test_kafka_topics import PARTITIONS, Topics, changed_in_tasks, error_of, refused
from tests.support.writing import values_in
from tools.kafka_broker.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300)]

KEYS = [f"{topic}{number}" for number in range(8) for topic in "ab"]


@pytest.fixture
def topics(broker):
    topics = Topics(broker.bootstrap, "ab")
    topics.create(PARTITIONS)
    return topics


class InterruptedWriter(TopicsWriter):
    """Completes the first topic, and then fails, as if the driver was killed."""

    def commit(self, messages):
        topic, writer = next(iter(self._writers.items()))
        TopicsWriter({topic: writer}).commit(messages)
        raise RuntimeError(f"killed after the commit of {topic}")


class InterruptedSource(ConditionalLogSource):
    """The data source with an `InterruptedWriter`."""

    @classmethod
    def name(cls):
        return "interrupted"

    def writer(self, schema, overwrite):
        writer = super().writer(schema, overwrite)
        assert isinstance(writer, TopicsWriter)
        return InterruptedWriter(writer._writers)


def values(topics, topic):
    """Return the values of each partition of a topic."""
    with topics.log(topic) as log:
        return [values_in(log, partition) for partition in range(log.layout().partitions)]


def all_values(topics, topic):
    return sorted(value for each in values(topics, topic) for value in each)


def count_in(url):
    with open_log(url) as log:
        return sum(len(values_in(log, partition)) for partition in range(log.layout().partitions))


def failing_in(topics, topic, after, count):
    """Return a function for tasks. It fails for rows of a topic, after another topic has a number of rows."""
    name, url = topics.name[topic], f"kafka://{topics.servers}/{topics.name[after]}"

    def run(batches):
        for batch in batches:
            if batch.column("topic")[0].as_py() == name:
                wait_until(lambda: count_in(url) == count, 60, lambda: "the other topic is not complete")
                raise RuntimeError("power cut")
            yield batch

    return run


def test_stream_is_in_each_topic_once_and_in_order_through_failures_and_restarts(spark, topics, tmp_path):
    spark.dataSource.register(InterruptedSource)
    source = Source(spark, tmp_path / "source")
    prefix = topics.name["a"].removesuffix("a")
    stream = source.stream().withColumn("topic", sf.concat(sf.lit(prefix), sf.substring("key", 1, 1)))
    batches = [
        [*zip(keys, source.add(name, *keys), strict=True)] for name, keys in (("x", KEYS), ("y", KEYS), ("z", ["b1"]))
    ]
    attempts = []

    def append(batch, number):
        options = {**topics.options, "batchId": number}
        routed = route(batch, options)
        attempts.append(number)
        attempt = (number, attempts.count(number))
        if attempt == (1, 1):
            routed = changed_in_tasks(routed, failing_in(topics, "b", "a", len(KEYS)))
        source = "interrupted" if attempt == (1, 2) else FORMAT
        routed.write.format(source).mode("append").options(**options).save()
        if attempt == (0, 1):
            raise RuntimeError("killed after the write")

    writer = stream.writeStream.foreachBatch(append).option("checkpointLocation", str(tmp_path / "checkpoint"))
    start = writer.trigger(availableNow=True).start
    for why in ("killed after the write", "power cut", "killed after the commit"):
        with pytest.raises(PySparkException, match=why):
            finish(start())
        if why == "power cut":
            first, second = batches[:2]
            assert all_values(topics, "a") == sorted(value for key, value in first + second if key[0] == "a")
            assert all_values(topics, "b") == sorted(value for key, value in first if key[0] == "b")
    query = start()
    finish(query)
    assert attempts == [0, 0, 1, 1, 1, 2]
    keys = {value: key for rows in batches for key, value in rows}
    for topic in "ab":
        assert all_values(topics, topic) == sorted(value for value, key in keys.items() if key[0] == topic)
        for each in values(topics, topic):
            assert each == sorted(each, key=lambda value: (value[0], keys[value], value))
        with topics.log(topic) as log:
            assert {each.batch.query for each in job_progress(log, "load-1") if each.batch} == {query.id}


def append(spark, topics, number, rows, **more):
    """Append a micro-batch of an unknown query, as on Spark Connect. ``rows`` are the values of each topic."""
    options = {**topics.options, "batchId": number, **more}
    data = [(value, value, topics.name[topic]) for topic, each in rows.items() for value in each]
    frame = spark.createDataFrame(data, "key string, value string, topic string")
    route(frame, options).write.format(FORMAT).mode("append").options(**options).save()


def test_changed_rows_of_one_topic_are_rejected_and_the_error_counts_the_rows_of_the_batch(spark, topics):
    append(spark, topics, 0, {"a": "123", "b": "4"})
    append(spark, topics, 1, {"a": "56", "b": "7"})
    message = refused(InputChangedError, lambda: append(spark, topics, 1, {"a": "56", "b": "8"}))
    assert message.startswith(f"topic {topics.name['b']}: partition ")
    assert message.endswith(f"Complete topics: {topics.name['a']} (2 rows).")
    assert [all_values(topics, each) for each in "ab"] == [[*"12356"], [*"47"]]


def test_later_batch_in_one_topic_rejects_an_older_one_in_all_topics(spark, topics):
    append(spark, topics, 5, {"a": "12345678"})
    older = partial(append, spark, topics, 4, {"a": "9", "b": "123"})
    assert refused(CheckpointMismatchError, older).startswith(f"topic {topics.name['a']}: partition ")
    assert [all_values(topics, each) for each in "ab"] == [[*"12345678"], []]


def test_another_query_under_the_job_name_appends_to_no_topic(spark, topics, tmp_path):
    source = Source(spark, tmp_path / "source")
    source.add("x", "a1")
    stream = source.stream().withColumn("topic", sf.lit(topics.name["a"]))

    def write(batch, number):
        options = {**topics.options, "batchId": number}
        route(batch, options).write.format(FORMAT).mode("append").options(**options).save()

    writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
    finish(writer.trigger(availableNow=True).start())
    before = all_values(topics, "a")
    assert len(before) == 1
    refused(JobMismatchError, lambda: append(spark, topics, 1, {"a": "2", "b": "12345678"}))
    assert [all_values(topics, each) for each in "ab"] == [before, []]


def test_replay_without_rows_of_a_topic_is_rejected_if_an_option_names_the_topic(spark, topics):
    first = {"expectedOffsets": json.dumps({topics.name["a"]: {"0": 0, "1": 0}})}
    append(spark, topics, 0, {"a": "12", "b": "34"}, **first)
    message = refused(InputChangedError, lambda: append(spark, topics, 0, {"b": "34"}, **first))
    assert message.startswith(f"topic {topics.name['a']}: partition ")
    assert "the replay has none" in message
    append(spark, topics, 0, {"b": "34"})
    assert [all_values(topics, each) for each in "ab"] == [[*"12"], [*"34"]]


@pytest.mark.full
def test_conflict_in_one_topic_does_not_stop_the_other_and_the_replay_completes_the_batch(spark, topics):
    name = topics.name["a"]
    first = {"expectedOffsets": json.dumps({name: {"0": 0, "1": 0}})}
    append(spark, topics, 0, {"a": "12345678", "b": "1"}, **first)
    for partition in range(PARTITIONS["a"]):
        topics.append_foreign("a", partition)
    batch = {"a": "9", "b": "23"}
    error = error_of(ConflictError, lambda: append(spark, topics, 1, batch, **first))
    assert error.message.startswith(f"topic {name}: partition ")
    assert error.message.endswith(f"Complete topics: {topics.name['b']} (2 rows).")
    assert all_values(topics, "b") == [*"123"]
    for _ in range(2):
        append(spark, topics, 1, batch, expectedOffsets=json.dumps(error.next_offsets))
        assert all_values(topics, "a") == ["-1", "-1", *"123456789"]
        assert all_values(topics, "b") == [*"123"]


def test_batch_without_rows_appends_nothing(spark, topics):
    append(spark, topics, 0, {"a": "1"})
    append(spark, topics, 1, {})
    append(spark, topics, 2, {"a": "2"})
    assert [all_values(topics, each) for each in "ab"] == [["1", "2"], []]


def test_atomic_batch_is_rejected(spark, topics):
    assert "atomic=load" in refused(OptionError, lambda: append(spark, topics, 0, {"a": "1"}, atomic="load"))
    assert all_values(topics, "a") == []


def test_streaming_query_is_rejected_before_a_row_is_appended(spark, topics, tmp_path):
    source = Source(spark, tmp_path / "source")
    source.add("x", *KEYS)
    stream = source.stream().withColumn("topic", sf.lit(topics.name["a"]))
    assert "foreachBatch" in refused(OptionError, lambda: route(stream, topics.options))
    writer = stream.withColumn("partition", sf.lit(0)).writeStream.format(FORMAT).options(**topics.options)
    start = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start
    assert "foreachBatch" in refused(OptionError, lambda: start(routed="true").awaitTermination(120))
    assert all_values(topics, "a") == []
