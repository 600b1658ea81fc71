"""Spark Connect: route, write, rejection, read and views through a remote session."""

import json
from zlib import crc32

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as sf

from jobs.stream_copy import main as stream_copy
from spark_cas import append_if_unchanged, bootstrap, error_from_text, open_log, route, verify_log
from spark_cas.core.errors import ConflictError, LogNotFoundError, OptionError
from tests.kafka.clients import create_topic
from tests.long import full
from tests.spark.addresses import EMBEDDED, EMBEDDED_AND_KAFKA, ON_KAFKA, new_log

# A Connect session starts its own Python workers, which is slow on a busy machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(params=EMBEDDED_AND_KAFKA)
def log_path(request, path):
    return new_log(request, path, 2)


@pytest.fixture
def copy_path(log_path, tmp_path):
    """The address of a second log, which is on the same backend."""
    broker, _, _ = log_path.rpartition("/")
    if not broker.startswith("kafka:"):
        with open_log(f"{tmp_path}/copy") as log:
            log.create(2)
            return f"{tmp_path}/copy"
    return f"{broker}/{create_topic(broker.removeprefix('kafka://'), 2)}"


def numbered(session, start, end):
    return session.range(start, end).selectExpr("CONCAT('N', id % 7) AS key", "CAST(id AS STRING) AS value")


def save(rows, options):
    route(rows, options).write.format("conditional-log").mode("append").options(**options).save()


def test_route_write_read_and_refusal_on_connect(connect, path):
    df = connect.range(40).select(
        sf.expr("IF(id < 5, NULL, concat('N', id % 7))").alias("key"), sf.col("id").cast("string").alias("value")
    )
    options = {"path": path, "partitions": 2, "job": "load-1"}
    routed = route(df, options)
    mark = {"partitions": 2, "end_markers": "partition", "sorted": 1, "partitioner": "murmur2", "options": ["job"]}
    assert routed.schema["partition"].metadata == {"spark_cas": mark}
    routed.write.format("conditional-log").mode("append").options(**options).save()
    assert connect.read.format("conditional-log").load(path).count() == 40
    found = bootstrap(connect, path)
    assert (found.records.count(), found.state.count(), found.offsets.count()) == (40, 7, 2)
    other = {**options, "job": "load-2", "expectedOffsets": '{"0": 1, "1": 1}'}
    with pytest.raises(Exception, match="CONFLICT") as caught:
        routed.write.format("conditional-log").mode("append").options(**other).save()
    assert isinstance(error_from_text(str(caught.value)), ConflictError)
    with pytest.raises(LogNotFoundError):
        route(df, path + "-missing")


@pytest.mark.kafka
def test_rows_of_several_topics_on_connect(connect, broker):
    topics = [create_topic(broker.bootstrap, partitions) for partitions in (2, 3)]
    numbers = connect.range(40)
    topic = sf.when(sf.col("id") < 10, topics[0]).otherwise(topics[1]).alias("topic")
    df = numbers.select(sf.concat(sf.lit("N"), "id").alias("key"), sf.col("id").cast("string").alias("value"), topic)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "job": "load-1"}
    for _ in range(2):
        save(df, options)
        read = connect.read.format("conditional-log").option("kafka.bootstrap.servers", broker.bootstrap)
        found = read.option("subscribe", ",".join(topics)).load().selectExpr("topic", "INT(STRING(value)) AS id")
        assert sorted(found.collect(), key=lambda row: row.id) == [(topics[at >= 10], at) for at in range(40)]
    later = df.selectExpr("key", "STRING(INT(value) + 100) AS value", "topic")
    for _ in range(2):
        save(later, {**options, "job": "stream-1", "batchId": 0})
        assert read.option("subscribe", ",".join(topics)).load().count() == 80
    with pytest.raises(LogNotFoundError, match="topic missing: "):
        route(df.withColumn("topic", sf.lit("missing")), options)


def test_on_connect_rows_go_where_the_recorded_partitioner_puts_them(connect, path):
    with open_log(path) as log:
        log.create(4, "crc32")
    keys = [f"N{number}" for number in range(40)]
    df = connect.createDataFrame([(key, "value") for key in keys], "key string, value string")
    found = route(df, {"path": path, "job": "load"}).where("partition >= 0").select("key", "partition").collect()
    assert {row.key: row.partition for row in found} == {key: crc32(key.encode()) % 4 for key in keys}
    with pytest.raises(OptionError):
        route(df, {"path": path, "job": "load", "partitioner": "murmur2"})


@pytest.mark.parametrize("log_path", EMBEDDED, indirect=True)
@pytest.mark.parametrize("with_batch_id", [True, *full(False)])
def test_foreach_batch_on_connect_appends_each_batch_once(connect, log_path, tmp_path, with_batch_id):
    numbers = str(tmp_path / "numbers")
    connect.range(20).write.parquet(numbers)
    stream = connect.readStream.schema("id BIGINT").parquet(numbers)
    rows = stream.selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")

    def run(*, fails=False):
        def append(batch, number):
            job = {"job": "numbers", "batchId": number} if with_batch_id else {"job": f"numbers-{number}"}
            save(batch, {"path": log_path, **job})
            if fails:
                message = "the function fails after it has appended the batch"
                raise ValueError(message)

        writer = rows.writeStream.foreachBatch(append).option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start().awaitTermination(200)

    def appended():
        return connect.read.format("conditional-log").load(log_path).count()

    with pytest.raises(StreamingQueryException, match="after it has appended"):
        run(fails=True)
    assert appended() == 20
    run()
    assert appended() == 20
    connect.range(20, 30).write.mode("append").parquet(numbers)
    run()
    assert appended() == 30


@pytest.mark.parametrize("log_path", ON_KAFKA, indirect=True)
def test_other_ways_to_write_and_check_on_connect(connect, log_path):
    rows = numbered(connect, 0, 40)
    save(rows, {"path": log_path, "job": "load-1", "atomic": "load"})
    assert verify_log(rows, log_path).holds
    changes = numbered(connect, 40, 47).selectExpr("key", "value", "IF(key = 'N1', 0L, NULL) AS expected_offset")
    result = append_if_unchanged(changes, {"path": log_path, "job": "changes-1"})
    assert [row.key for row in result.rejected.collect()] == ["N1"]
    assert result.appended.count() == 6
    found = verify_log(rows, log_path)
    assert (found.missing, found.unexpected) == (0, 6)
    state = bootstrap(connect, log_path)
    assert (state.records.count(), state.state.count(), state.offsets.count()) == (46, 7, 2)
    save(numbered(connect, 47, 50), {"path": log_path, "job": "load-2", "expectedOffsets": state.expected_offsets})
    with pytest.raises(PySparkException, match="CONFLICT"):
        save(rows, {"path": log_path, "job": "load-3", "expectedOffsets": state.expected_offsets})


@pytest.mark.parametrize("log_path", EMBEDDED, indirect=True)
def test_sql_on_connect(connect, log_path):
    tables, views = ("connect_log", "connect_in"), ("connect_rows", "connect_routed")
    try:
        connect.sql("CREATE TABLE connect_log USING `conditional-log`")
        connect.sql("CREATE TABLE connect_in (key STRING, value STRING, partition INT) USING `conditional-log`")
        options = {"path": log_path, "job": "load-1"}
        numbered(connect, 0, 40).createOrReplaceTempView("connect_rows")
        route(numbered(connect, 0, 40), options).createOrReplaceTempView("connect_routed")
        insert = f"INSERT INTO connect_in WITH (path='{log_path}', job='load-1')"
        for _ in range(2):
            connect.sql(f"{insert} SELECT key, value, partition FROM connect_routed")  # noqa: S608
        insert = f"INSERT INTO connect_in WITH (path='{log_path}', job='load-2', routed='true')"
        unrouted = "SELECT key, value, CAST(pmod(hash(key), 2) AS INT) AS partition FROM connect_rows"
        for _ in range(2):
            connect.sql(f"{insert} {unrouted} DISTRIBUTE BY partition SORT BY partition, key, value")
        for _ in range(2):
            options["job"] = "load-3"
            route(numbered(connect, 0, 40), options).writeTo("connect_in").options(**options).append()
        found = connect.sql(f"SELECT * FROM connect_log WITH (path='{log_path}')")  # noqa: S608
        assert found.count() == 3 * 40
    finally:
        for name in views:
            connect.catalog.dropTempView(name)
        for name in tables:
            connect.sql(f"DROP TABLE IF EXISTS {name}")


def test_write_to_a_path_is_rejected_by_spark_on_connect(connect, path):
    with open_log(path) as log:
        log.create(1)
    rows = route(numbered(connect, 0, 3), path)
    with pytest.raises(PySparkException) as caught:
        rows.writeTo(f"`conditional-log`.`{path}`").append()
    assert caught.value.getCondition() == "TABLE_OR_VIEW_NOT_FOUND"
    assert connect.read.format("conditional-log").load(path).count() == 0


@pytest.mark.parametrize("log_path", ON_KAFKA, indirect=True)
def test_stream_reads_and_writes_each_record_once_on_connect(connect, log_path, copy_path, tmp_path):
    """Copy a log with a query that is restarted twice."""
    expected: list[str] = []
    for turn in range(3):
        save(numbered(connect, 10 * turn, 10 * turn + 10), {"path": log_path, "job": f"load-{turn}"})
        expected += [str(number) for number in range(10 * turn, 10 * turn + 10)]
        records = connect.readStream.format("conditional-log").option("startingOffsets", "earliest").load(log_path)
        options: dict[str, str | float] = {"path": copy_path, "job": "copy", "orderBy": "value"}
        rows = route(records.select("key", "value"), options)
        writer = rows.writeStream.format("conditional-log").options(**options)
        query = writer.option("checkpointLocation", f"{tmp_path}/checkpoint").trigger(availableNow=True).start()
        assert query.awaitTermination(200)
        found = connect.read.format("conditional-log").load(copy_path).selectExpr("CAST(value AS STRING) AS value")
        assert sorted((row.value for row in found.collect()), key=int) == expected


@pytest.mark.full
def test_stream_copy_on_connect(connect, log_path, copy_path, tmp_path, capsys):
    arguments = ["--from", log_path, "--to", copy_path, "--checkpoint", f"{tmp_path}/checkpoint", "--job", "copy"]
    arguments += ["--from-option", "maxOffsetsPerTrigger=25"]
    copied = []
    for turn in range(3):
        save(numbered(connect, 0, 40), {"path": log_path, "job": f"load-{turn // 2}"})
        assert stream_copy(arguments, "stream_copy.py", lambda _: connect) == 0
        copied.append(json.loads(capsys.readouterr().out.splitlines()[-1])["rows"])
    assert copied == [40, 0, 40]
    assert verify_log(numbered(connect, 0, 40).union(numbered(connect, 0, 40)), copy_path).holds
