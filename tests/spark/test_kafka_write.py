"""Writes to topics through Spark: the guarantees that a user sees."""

import json
import re
import uuid

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

from spark_cas import error_from_text, open_log, route
from spark_cas.core.errors import (
    ConflictError,
    InputChangedError,
    LayoutChangedError,
    LogNotFoundError,
    NotRoutedError,
    OptionError,
    RecordTooLargeError,
    StorageError,
)
from tests.support.writing import records_in

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.fixture
def options(broker):
    """The options of a topic that the first write creates."""
    return {
        "kafka.bootstrap.servers": broker.bootstrap,
        "topic": f"flights-{uuid.uuid4().hex[:8]}",
        "job": "load-1",
        "partitions": 4,
    }


@pytest.fixture
def flights(spark):
    ids = spark.range(100, numPartitions=2)
    return ids.select(
        sf.concat(sf.lit("N"), sf.col("id") % 10).alias("key"), sf.col("id").cast("string").alias("value")
    )


def save(df, options, **more):
    df.write.format("conditional-log").mode("append").options(**{**options, **more}).save()


def reading(options):
    return {name: value for name, value in options.items() if name not in ("job", "partitions")}


def url_of(options):
    return f"kafka://{options['kafka.bootstrap.servers']}/{options['topic']}"


def rows_of(options):
    with open_log(url_of(options)) as log:
        return [records_in(log, partition) for partition in range(log.layout().partitions)]


def values_of(options):
    return sorted(int(row["value"]) for records in rows_of(options) for _, row in records)


def ends_of(spark, options):
    view = spark.read.format("conditional-log").options(**reading(options), view="offsets").load()
    return {str(row.partition): row.end_offset for row in view.collect()}


def error_of(kind, action):
    with pytest.raises(PySparkException) as caught:
        action()
    error = error_from_text(str(caught.value))
    assert error is not None
    assert type(error) is kind, str(caught.value)
    return error


def refused(kind, action):
    return error_of(kind, action).message


def test_a_load_and_the_same_load_again(spark, flights, options):
    for _ in range(2):
        save(route(flights, options), options)
        assert values_of(options) == list(range(100))
    changed = flights.where("value != '17'")
    assert "Nothing was appended" in refused(InputChangedError, lambda: save(route(changed, options), options))
    assert values_of(options) == list(range(100))


def test_of_two_writers_that_saw_the_same_ends_the_second_is_refused(spark, flights, options):
    save(route(flights, options), options)
    seen = json.dumps(ends_of(spark, options))
    one = {**options, "job": "one", "expectedOffsets": seen}
    save(route(flights, one), one)
    other = {**options, "job": "other", "expectedOffsets": seen}
    error_of(ConflictError, lambda: save(route(flights, other), other))
    assert values_of(options) == sorted([*range(100)] * 2)


def test_an_ordinary_producer_in_between_is_a_conflict(spark, flights, options):
    save(route(flights, options), options)
    seen = ends_of(spark, options)
    producer = Producer({"bootstrap.servers": options["kafka.bootstrap.servers"]})
    producer.produce(options["topic"], "-1", partition=0)
    assert producer.flush(30) == 0
    before = rows_of(options)
    assert before[0][-1][1]["value"] == b"-1"
    late = {**options, "job": "late", "expectedOffsets": json.dumps(seen)}
    routed = route(flights, late)
    for rows in (routed, routed.where("partition <> 0")):
        error = error_of(ConflictError, lambda rows=rows: save(rows, late))
        assert error.partition == 0
        assert rows_of(options) == before, "in no partition, with rows for that of the record or without"
    save(routed, {**late, "expectedOffsets": json.dumps(error.next_offsets)})
    assert values_of(options) == sorted([-1, *[*range(100)] * 2])


def test_without_the_check_it_is_an_ordinary_sink(spark, flights, options, tmp_path):
    save(route(flights, options), options)
    file = tmp_path / "conditional-log.toml"
    file.write_text(f"[logs.{options['topic']}]\ncheckExpectedOffsets = false\nkafka.retry.backoff.ms = 3\n")
    sink = {**options, "job": "sink", "conf": str(file)}
    for _ in range(2):
        save(route(flights, sink), sink)
    assert values_of(options) == sorted([*range(100)] * 2)
    claims = {**sink, "job": "claims", "expectedOffsets": json.dumps(ends_of(spark, options))}
    assert "checkExpectedOffsets" in refused(OptionError, lambda: save(route(flights, options), claims))


@pytest.mark.full
def test_missing_topic_is_reported(spark, flights, options):
    known = {name: value for name, value in options.items() if name != "partitions"}
    with pytest.raises(LogNotFoundError, match="give route the options"):
        route(flights, known)
    df = flights.withColumn("partition", sf.lit(0)).coalesce(1)
    assert "option('partitions'" in refused(LogNotFoundError, lambda: save(df, known, routed=True))
    assert options["topic"] in refused(LogNotFoundError, lambda: ends_of(spark, known))


def test_rows_routed_for_another_layout_are_refused(flights, options):
    save(route(flights, options), options)
    routed = route(flights, {**options, "job": "load-2"})
    admin = AdminClient({"bootstrap.servers": options["kafka.bootstrap.servers"]})
    admin.create_partitions([NewPartitions(options["topic"], 5)])[options["topic"]].result(30)
    message = refused(LayoutChangedError, lambda: save(routed, reading(options), job="load-2"))
    assert "Route the rows again" in message


def test_a_topic_column_is_passed_over_and_does_not_replace_the_option(spark, flights, options):
    save(route(flights, options), options)
    read = spark.read.format("conditional-log").options(**reading(options)).load()
    copy = {**options, "topic": options["topic"] + "-copy"}
    save(route(read, copy), copy)
    assert values_of(copy) == list(range(100))
    nowhere = {name: value for name, value in copy.items() if name != "topic"}
    assert "set option topic" in refused(NotRoutedError, lambda: save(read, nowhere, routed=True))


@pytest.mark.full
def test_the_address_of_a_topic_is_a_path(spark, flights, options):
    save(route(flights, options), options)
    url = url_of(options)
    routed = route(flights, url)
    routed.write.format("conditional-log").mode("append").option("job", "load-2").save(url)
    assert spark.read.format("conditional-log").load(url).count() == 200


@pytest.mark.full
def test_writing_in_sql(spark, flights, options):
    route(flights, options).createOrReplaceTempView("routed")
    spark.sql("CREATE TABLE k (key STRING, value STRING, partition INT) USING `conditional-log`")
    where = ", ".join(f"'{name}'='{value}'" for name, value in options.items())
    try:
        spark.sql(f"INSERT INTO k WITH ({where}) SELECT key, value, partition FROM routed")  # noqa: S608
    finally:
        spark.sql("DROP TABLE k")
    assert values_of(options) == list(range(100))


def test_a_row_larger_than_the_topic_takes_is_named_before_it_is_sent(spark, flights, options):
    save(route(flights, options), options)
    large = {**options, "job": "large"}
    value = sf.expr("repeat('x', IF(value = '17', 2000000, 1))")
    message = refused(RecordTooLargeError, lambda: save(route(flights.withColumn("value", value), large), large))
    assert re.search(
        r"row \d+ of partition \d+ \(key N\d\) takes 20000\d\d bytes, and the log takes records of at most \d+",
        message,
    )
    almost = {**options, "job": "almost"}
    value = sf.expr("repeat('x', IF(value = '17', 1040000, 1))")
    save(route(flights.withColumn("value", value), almost), almost)


@pytest.mark.full
def test_secrets_are_shown_nowhere(spark, flights, options):
    """The broker rejects the login, because it has no logins configured."""
    login = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="hunter2";'
    sasl = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": login,
    }
    read = spark.read.format("conditional-log").options(**reading(options), **sasl).load()
    plans = read._sc._jvm.PythonSQLUtils.explainString(read._jdf.queryExecution(), "extended")
    assert "conditional-log" in plans
    with pytest.raises(StorageError) as from_route:
        route(flights, {**options, **sasl})
    df = flights.withColumn("partition", sf.lit(0)).coalesce(1)
    said = refused(StorageError, lambda: save(df, options, **sasl, routed=True))
    assert "hunter2" not in plans + said + str(from_route.value)
    # Spark shows these descriptions in its web UI and in the event log.
    queries = spark._jsparkSession.sharedState().statusStore().executionsList()
    told = " ".join(queries.apply(number).physicalPlanDescription() for number in range(queries.size()))
    assert "conditional-log" in told
    assert "hunter2" not in told
