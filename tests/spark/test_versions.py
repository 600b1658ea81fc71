"""Each part of the connector on the installed version of pyspark. `make test-spark-4.0` and so on run this file.

Tests with the marker `full` have a counterpart in `make test`, in the file of their part.
"""

import json

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as sf

from spark_cas import append_if_unchanged, bootstrap, error_from_text, open_log, route, verify_log
from spark_cas.core.errors import ConflictError, OptionError, SparkSetupError
from spark_cas.core.partitioner import partition_of_key
from spark_cas.log.expanding import expand_log
from spark_cas.options.parse import parse_read_stream
from spark_cas.programs.input.row_json import row_json
from spark_cas.spark import versions
from spark_cas.spark.accelerators.jvm_hash import JvmHash
from spark_cas.spark.reading import verify_log as verify_log_module
from spark_cas.spark.reading.stream_read import RecordsStreamReader
from spark_cas.spark.schema import RECORDS
from spark_cas.spark.versions import HAS_READ_LIMITS, ReadAllAvailable
from tests.long import full
from tests.spark.streams import Stream, batches_of
from tests.support.writing import append_foreign

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

FORMAT = "conditional-log"
VECTORS = {"": 1, "N14228": 3, "ключ": 4, "a" * 33: 2}
"""Keys and their partitions of 5, as the Java client assigns them."""


def rows_of(spark, count=40):
    return spark.range(count).selectExpr("CONCAT('N', id % 7) AS key", "CAST(id AS STRING) AS value")


def load(rows, path, **more):
    options = {"path": path, "partitions": 2, "job": "load-1", **more}
    route(rows, options).write.format(FORMAT).mode("append").options(**options).save()


@pytest.mark.full
def test_load_is_written_once_and_read_back(spark, path):
    rows = rows_of(spark).withColumn("timestamp", sf.timestamp_millis(sf.lit(1_700_000_000_123)))
    rows = rows.withColumn("headers", sf.expr("array(named_struct('key', 'h', 'value', X'00FF'))"))
    load(rows, path)
    load(rows, path)
    read = spark.read.format(FORMAT).option("includeHeaders", "true").load(path)
    records = read.withColumn("timestamp", sf.unix_micros("timestamp")).collect()
    assert sorted(int(row.value) for row in records) == [*range(40)]
    assert {(row.topic, row.timestamp, row.timestampType) for row in records} == {
        ("flights", 1_700_000_000_123_000, 0)
    }
    assert all([tuple(each) for each in row.headers] == [("h", b"\0\xff")] for row in records)
    assert all(row.partition == partition_of_key(bytes(row.key), 2) for row in records)
    progress = spark.read.format(FORMAT).option("view", "progress").load(path)
    assert progress.where("complete AND committed_at > current_timestamp() - INTERVAL 1 HOUR").count() == 2


@pytest.mark.parametrize("in_python", [False, *full(True)])
def test_keys_are_assigned_as_by_other_clients(spark, path, monkeypatch, in_python):
    if in_python:
        monkeypatch.setattr(JvmHash, "of", lambda _: None)
    load(spark.createDataFrame([(key, "v") for key in VECTORS], "key string, value string"), path, partitions=5)
    found = spark.read.format(FORMAT).load(path).selectExpr("CAST(key AS STRING) AS key", "partition").collect()
    assert {row.key: row.partition for row in found} == VECTORS


@pytest.mark.parametrize("arrange", [versions.to_numbered_tasks, versions._by_hash])
@pytest.mark.parametrize("tasks", [1, 7, *full(300)])
def test_rows_are_in_the_task_of_their_number(spark, arrange, tasks):
    rows = spark.range(3 * tasks).selectExpr(f"CAST(id % {tasks} AS INT) AS number")
    arranged = arrange(rows, tasks, sf.col("number"))
    assert arranged.rdd.getNumPartitions() == tasks
    assert arranged.where(sf.spark_partition_id() == sf.col("number")).count() == 3 * tasks


@pytest.mark.full
def test_stale_offsets_are_rejected_and_fresh_ones_accepted(spark, path):
    load(rows_of(spark), path)
    state = bootstrap(spark, path)
    assert (state.records.count(), state.state.count(), state.offsets.count()) == (40, 7, 2)
    expected = json.dumps({str(row.partition): row.end_offset for row in state.offsets.collect()})
    load(rows_of(spark, 10), path, job="load-2", expectedOffsets=expected)
    with pytest.raises(Exception, match="CONFLICT") as raised:
        load(rows_of(spark, 10), path, job="load-3", expectedOffsets=expected)
    assert isinstance(error_from_text(str(raised.value)), ConflictError)
    assert spark.read.format(FORMAT).load(path).count() == 50


@pytest.mark.full
def test_other_ways_to_write_and_check(spark, path):
    load(rows_of(spark), path, atomic="load")
    assert verify_log(rows_of(spark), path).holds
    rows = rows_of(spark, 7).selectExpr("key", "value", "IF(key = 'N1', 0L, NULL) AS expected_offset")
    rejected = append_if_unchanged(rows, {"path": path, "job": "more"}).rejected
    assert [row.key for row in rejected.collect()] == ["N1"]
    assert spark.read.format(FORMAT).load(path).count() == 46


def test_row_is_rendered_as_json(spark):
    frame = spark.sql("SELECT 1.10 AS a, TIMESTAMP '2024-01-02 03:04:05.000006Z' AS t")
    (row,) = frame.select(row_json(frame, []).alias("json")).collect()
    assert row.json == '{"a":1.10,"t":"2024-01-02T03:04:05.000006Z"}'


@pytest.mark.parametrize("some", [{}, *full({"assign": '{"flights": [1, 0]}'}, {"endingOffsets": "latest"})])
def test_verification_has_one_set_of_records(spark, path, monkeypatch, some):
    """On 4.0 each query plans its own end offsets."""
    load(rows_of(spark), path)

    def meanwhile(*arguments, listed=verify_log_module._uneven):
        with open_log(path) as log:
            append_foreign(log, 0, "x")
        return listed(*arguments)

    monkeypatch.setattr(verify_log_module, "_uneven", meanwhile)
    found = verify_log(rows_of(spark, 41), {"path": path, **some})
    assert (found.missing, found.unexpected) == (1, 0)
    assert [each.kind for each in found.differences] == ["missing"]


@pytest.mark.full
def test_results_of_append_if_unchanged_do_not_change(spark, path):
    """On 4.0 each query plans its own end offsets."""
    load(rows_of(spark), path, partitions=1)
    rows = spark.sql("SELECT 'N' || id AS key, 'new' AS value, IF(id = 1, 0L, 40L) AS expected_offset FROM range(5)")
    result = append_if_unchanged(rows, {"path": path, "job": "more"})
    for _ in range(2):
        appended = result.appended.selectExpr("STRING(key)", "offset").orderBy("offset").collect()
        assert [row.offset for row in appended] == [40, 41, 42, 43]
        assert {row.key for row in appended} == {"N0", "N2", "N3", "N4"}
        (rejected,) = result.rejected.selectExpr("key", "actual_offset < 40 AS is_old").collect()
        assert tuple(rejected) == ("N1", True)
        with open_log(path) as log:
            append_foreign(log, 0, "N0", "N1")


@pytest.mark.full
def test_stream_reads_each_record_once_through_restarts(spark, path, tmp_path):
    stream = Stream(spark, tmp_path / "stream", path=path, startingOffsets="earliest")
    expected: list[str] = []
    with open_log(path) as log:
        log.create(2)
        for turn in range(3):
            append_foreign(log, turn % 2, *(f"{turn}{each}" for each in "abc"))
            expected += [f"{turn}{each}" for each in "abc"]
            stream.run()
            assert stream.values() == expected
        with stream.running() as query:
            append_foreign(log, 1, "x")
            query.processAllAvailable()
    assert stream.values() == [*expected, "x"]


@pytest.mark.full
def test_stream_and_foreach_batch_append_each_batch_once(spark, path, tmp_path):
    numbers = str(tmp_path / "numbers")
    rows_of(spark).write.parquet(numbers)
    rows = spark.readStream.schema("key string, value string").parquet(numbers)
    options = {"path": path, "partitions": 2, "orderBy": "value"}

    def append(batch, number):
        load(batch, path + "-2", job="batches", batchId=number)
        load(batch, path + "-2", job="batches", batchId=number)

    for checkpoint in ("a", "b"):
        sink = (
            route(rows, {**options, "job": checkpoint}).writeStream.format(FORMAT).options(**options, job=checkpoint)
        )
        sink = sink.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True)
        assert sink.start().awaitTermination(200)
    each = rows.writeStream.foreachBatch(append).option("checkpointLocation", str(tmp_path / "c"))
    assert each.trigger(availableNow=True).start().awaitTermination(200)
    assert spark.read.format(FORMAT).load(path).count() == 80
    assert spark.read.format(FORMAT).load(path + "-2").count() == 40


@pytest.mark.full
def test_connect(connect, path):
    load(rows_of(connect), path)
    load(rows_of(connect), path)
    assert connect.read.format(FORMAT).load(path).count() == 40


# The reader before 4.2: Spark passes no position.


@pytest.fixture
def log(path):
    with open_log(path) as log:
        log.create(1)
        append_foreign(log, 0, *"ab")
        yield log


@pytest.fixture
def positioned(path, log):
    def reader():
        options = parse_read_stream({"path": path, "startingOffsets": "earliest"})
        return versions._WithPosition(RecordsStreamReader(options, RECORDS))

    return reader


def values_of(reader, start, end):
    batches = [pa.table(batch) for task in reader.partitions(start, end) for batch in reader.read(task)]
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def test_position_moves_with_the_batches(positioned, log):
    reader = positioned()
    first = reader.latestOffset()
    start = reader.initialOffset()
    assert values_of(reader, start, first) == [b"a", b"b"]
    append_foreign(log, 0, "c")
    second = reader.latestOffset()
    assert values_of(reader, first, second) == [b"c"]
    append_foreign(log, 0, "d")
    restarted = positioned()
    assert values_of(restarted, second, second) == []
    assert values_of(restarted, first, second) == [b"c"], "the last batch again"
    assert values_of(restarted, second, restarted.latestOffset()) == [b"d"]


def test_initial_offset_stays_while_a_query_begins(path, log):
    options = parse_read_stream({"path": path, "startingOffsets": "latest"})
    reader = versions._WithPosition(RecordsStreamReader(options, RECORDS))
    end = reader.latestOffset()
    append_foreign(log, 0, "c")
    assert values_of(reader, reader.initialOffset(), end) == []
    assert values_of(reader, end, reader.latestOffset()) == [b"c"]


def test_query_whose_position_is_not_known_is_rejected(positioned):
    first = positioned()
    end = first.latestOffset()
    restarted = positioned()
    restarted.latestOffset()  # with Spark's wrapper of the trigger
    with pytest.raises(SparkSetupError):
        restarted.partitions(end, end)


def test_limits_are_rejected_if_spark_has_none(path, log, monkeypatch):
    monkeypatch.setattr(versions, "HAS_READ_LIMITS", False)
    limited = RecordsStreamReader(parse_read_stream({"path": path, "maxOffsetsPerTrigger": "5"}), RECORDS)
    assert not isinstance(limited.getDefaultReadLimit(), ReadAllAvailable)
    with pytest.raises(OptionError, match=r"pyspark 4\."):
        versions.stream_reader(limited, by_time=False)


def test_limits_hold_with_a_position(path, log):
    options = parse_read_stream({"path": path, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "1"})
    found, start = [], None
    for _ in range(2):  # the second one restarts the query
        reader = versions._WithPosition(RecordsStreamReader(options, RECORDS))
        if start is not None:
            reader.partitions(start, start)  # Spark requests them, and reads none
        end = reader.latestOffset()
        found.append(values_of(reader, start or reader.initialOffset(), end))
        start = end
    assert found == [[b"a"], [b"b"]]


@pytest.mark.full
def test_limits_of_this_version(spark, path, log, tmp_path):
    stream = Stream(spark, tmp_path, path=path, startingOffsets="earliest", maxOffsetsPerTrigger=1)
    if HAS_READ_LIMITS:
        assert stream.run() == [1, 1]
    else:
        stream.refused(OptionError, processingTime="false")


def run_available_now(stream):
    return batches_of(stream.query().trigger(availableNow=True).start())


@pytest.mark.full
def test_available_now_reads_each_record_once_through_restarts(spark, path, log, tmp_path):
    stream = Stream(spark, tmp_path, path=path, startingOffsets="earliest")
    assert run_available_now(stream) == [2]
    assert run_available_now(stream) == []
    append_foreign(log, 0, *"cde")
    assert run_available_now(stream) == [3]
    assert stream.values() == [*"abcde"]


@pytest.mark.full
def test_available_now_after_a_failed_first_batch(spark, path, log, tmp_path):
    """Before 4.2 it takes two runs to read the records that were appended since."""
    stream = Stream(spark, tmp_path, path=path, startingOffsets="earliest")

    def fail(*_):
        raise RuntimeError("the driver dies in the first batch")

    failing = spark.readStream.format(FORMAT).options(**stream.options).load().writeStream.foreachBatch(fail)
    failing = failing.option("checkpointLocation", f"{tmp_path}/checkpoint").trigger(availableNow=True)
    with pytest.raises(StreamingQueryException, match="the driver dies"):
        batches_of(failing.start())
    append_foreign(log, 0, "c")
    run_available_now(stream)
    assert stream.values() == ([*"abc"] if HAS_READ_LIMITS else [*"ab"])
    run_available_now(stream)
    assert stream.values() == [*"abc"]


@pytest.mark.full
def test_limits_with_a_processing_time_trigger(spark, path, log, tmp_path):
    """Each batch has one record, through a restart and an expansion."""
    limits = {"maxOffsetsPerTrigger": 1, "processingTime": "true"}
    stream = Stream(spark, tmp_path, path=path, startingOffsets="earliest", **limits)
    expected = ["a", "b"]
    for turn in range(3):
        with stream.running() as query:
            query.processAllAvailable()
            assert stream.values() == sorted(expected)
            assert {each["numInputRows"] for each in query.recentProgress} <= {0, 1}
            if turn == 1:
                expand_log(log, 3)
            append_foreign(log, max(turn - 1, 0), f"c{turn}", f"d{turn}")
            expected += [f"c{turn}", f"d{turn}"]
            query.processAllAvailable()
            assert stream.values() == sorted(expected)
            append_foreign(log, 0, f"e{turn}")  # read before the stop, or after the restart
            expected.append(f"e{turn}")
