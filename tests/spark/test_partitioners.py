"""The option ``partitioner`` through Spark: stored with a log, and conditions on keys that other clients wrote."""

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from key_value_store import Node
from spark_cas import LogSettingsWarning, append_if_unchanged, bootstrap, error_from_text, open_log, route
from spark_cas.core.errors import ConflictError, JobMismatchError, OptionError
from spark_cas.core.partitioner import partition_of_key
from spark_cas.options.parse import parse_write, parse_write_stream
from spark_cas.spark.writing.stream_write import plan_stream_write
from spark_cas.spark.writing.write import plan_write
from tests.kafka.clients import SECONDS, create_topic
from tests.long import full
from tests.spark.addresses import KAFKA
from tests.support.writing import records_in

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PARTITIONS = 4
KEYS = [f"N{number}" for number in range(40)]


@pytest.fixture(params=["embedded", *full("kafka", also=pytest.mark.kafka)])
def new_options(request, path):
    """The options of a log that the first write creates."""
    if request.param == "embedded":
        return {"path": path, "partitions": PARTITIONS}
    broker = request.getfixturevalue("broker")
    return {
        "path": f"kafka://{broker.bootstrap}/{path.replace('/', '.')[-200:].strip('.')}",
        "partitions": PARTITIONS,
    }


@pytest.fixture
def filled(broker):
    """The options of a topic that confluent-kafka's producer filled, with its default partitioner."""
    topic = create_topic(broker.bootstrap, PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for key in KEYS:
        producer.produce(topic, b"theirs", key)
    assert producer.flush(SECONDS) == 0
    producer.close()
    return {"path": f"kafka://{broker.bootstrap}/{topic}"}


@pytest.fixture
def rows(spark):
    return spark.createDataFrame([(key, "mine") for key in KEYS], "key string, value string")


def save(df, options, **more):
    """Route and write the rows. Raise the package's error if Spark's exception contains one."""
    given = {**options, **more}
    routed = route(df, given)
    try:
        routed.write.format("conditional-log").mode("append").options(**given).save()
    except PySparkException as error:
        raise error_from_text(str(error)) or error from None


def keys_by_partition(options):
    with open_log(options["path"]) as log:
        return [{row["key"].decode() for _, row in records_in(log, each)} for each in range(log.layout().partitions)]


def placed(partitioner):
    return [
        {key for key in KEYS if partition_of_key(key.encode(), PARTITIONS, partitioner) == each}
        for each in range(PARTITIONS)
    ]


@pytest.mark.parametrize("new_options", [KAFKA, *full("embedded")], indirect=True)
def test_a_log_keeps_the_partitioner_that_its_first_write_names(spark, rows, new_options, tmp_path):
    save(rows, new_options, job="first", partitioner="consistent_random")
    assert keys_by_partition(new_options) == placed("crc32")
    save(rows, new_options, job="second")
    save(rows, new_options, job="third", partitioner="crc32")
    assert keys_by_partition(new_options) == placed("crc32")
    with pytest.raises(OptionError):
        route(rows, {**new_options, "job": "fourth", "partitioner": "murmur2"})
    unchecked = {**new_options, "job": "fourth", "partitioner": "murmur2"}
    routed = route(rows.withColumn("partition", sf.lit(0)), unchecked, by="partition")
    with pytest.raises(PySparkException, match=r"\[OPTION\]"):
        routed.write.format("conditional-log").mode("append").options(**unchecked).save()
    with open_log(new_options["path"]) as log:
        assert log.plan("fourth") is None
        plans = [log.plan(job) for job in ("first", "second", "third")]
        assert [plan.partitioner for plan in plans if plan] == ["crc32"] * 3
    view = spark.read.format("conditional-log").option("view", "offsets").load(new_options["path"])
    assert {row.partitioner for row in view.collect()} == {"crc32"}
    assert {row.partitioner for row in bootstrap(spark, new_options["path"]).offsets.collect()} == {"crc32"}
    with Node(new_options["path"], address="a", folder=tmp_path / "node", shards=[]) as node:
        assert [node.shard_of(key.encode()) for key in KEYS] == [
            partition_of_key(key.encode(), PARTITIONS, "crc32") for key in KEYS
        ]


def test_a_log_that_no_write_named_a_partitioner_for_has_murmur2(rows, new_options):
    save(rows, new_options, job="first")
    assert keys_by_partition(new_options) == placed("murmur2")
    with open_log(new_options["path"]) as log:
        assert log.layouts().partitioner in (None, "murmur2")
    save(rows, new_options, job="second")
    assert keys_by_partition(new_options) == placed("murmur2")


def test_a_job_is_not_continued_with_another_partitioner(rows, new_options):
    """Its rows would be placed in other partitions, and stored twice."""
    save(rows, new_options, job="first")
    with pytest.raises((JobMismatchError, OptionError)):
        save(rows, new_options, job="first", partitioner="crc32")
    assert keys_by_partition(new_options) == placed("murmur2")


def test_a_write_names_the_partitioner_that_route_used(rows, new_options):
    routed = route(rows, {**new_options, "job": "load"})
    with pytest.raises(PySparkException, match=r"\[OPTION\]"):
        routed.write.format("conditional-log").mode("append").options(
            **{**new_options, "job": "load", "partitioner": "crc32"}
        ).save()


def test_partitioner_of_route_is_recorded(rows, new_options):
    routed = route(rows, {**new_options, "job": "load", "partitioner": "crc32"})
    routed.write.format("conditional-log").mode("append").options(**{**new_options, "job": "load"}).save()
    assert keys_by_partition(new_options) == placed("crc32")
    with open_log(new_options["path"]) as log:
        assert log.layouts().partitioner == "crc32"


@pytest.mark.kafka
def test_condition_matches_a_key_written_by_librdkafka(rows, filled):
    conditional = {**filled, "compare": "key"}
    expecting = rows.withColumn("expected_offset", sf.lit(0).cast("bigint"))
    with pytest.raises(OptionError):
        save(expecting, conditional, job="by-murmur2")
    assert keys_by_partition(filled) == placed("crc32")
    with open_log(filled["path"]) as log:
        assert log.plan("by-murmur2") is None
    with pytest.raises(ConflictError):
        save(expecting, conditional, job="by-crc32", partitioner="crc32")
    new = expecting.withColumn("key", sf.concat(sf.lit("new-"), "key"))
    save(new, conditional, job="new")
    assert [len(keys) for keys in keys_by_partition(filled)] != [len(keys) for keys in placed("crc32")]


@pytest.mark.kafka
def test_append_if_unchanged_is_refused_where_existing_keys_are_elsewhere(rows, filled):
    expecting = rows.withColumn("expected_offset", sf.lit(0).cast("bigint"))
    with pytest.raises(OptionError):
        append_if_unchanged(expecting, {**filled, "job": "by-murmur2"})
    assert keys_by_partition(filled) == placed("crc32")
    found = append_if_unchanged(expecting, {**filled, "job": "by-crc32", "partitioner": "crc32"})
    assert found.rejected.count() == len(KEYS)


@pytest.mark.kafka
def test_a_write_is_warned_of_keys_that_are_elsewhere(rows, filled):
    def planned(**more):
        given = {**filled, "job": "load", "expectedoffsets": "none", **more}
        schema = route(rows, given).schema
        return plan_write(parse_write(given), schema), schema, given

    with pytest.warns(LogSettingsWarning, match="partitioner=crc32"):
        planned()
    with open_log(filled["path"]) as log:
        assert log.layouts().partitioner is None
    # pytest turns a warning into an error.
    planned(job="named", partitioner="crc32")


@pytest.mark.kafka
def test_a_stream_keeps_the_partitioner_that_it_began_with(rows, filled):
    def planned(**more):
        given = {**filled, "job": "stream", "checkpointlocation": "/nowhere", **more}
        schema = route(rows, {**filled, "job": "stream", **more}).schema
        return plan_stream_write(parse_write_stream(given), StructType(schema.fields))

    with pytest.warns(LogSettingsWarning):
        planned()
    with pytest.raises((JobMismatchError, OptionError)):
        planned(partitioner="crc32")
