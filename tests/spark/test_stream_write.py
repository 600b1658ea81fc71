"""The streaming sink through Spark, as a user sees it, on a log in a directory."""

import json
import os
import shutil
import sys
import warnings
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from spark_cas import LogSettingsWarning, open_log, route
from spark_cas.core.errors import (
    BatchTooLargeError,
    CheckpointMismatchError,
    ConflictError,
    InputChangedError,
    JobMismatchError,
    LogNotFoundError,
    NotRoutedError,
    OptionError,
)
from spark_cas.log.backend import Preflight
from spark_cas.log.load.planning import job_progress
from spark_cas.log.objects import ObjectLog
from spark_cas.spark.source import ConditionalLogSource
from spark_cas.spark.versions import HAS_READ_LIMITS, to_numbered_tasks
from spark_cas.spark.writing.report import TaskReport
from spark_cas.spark.writing.stream_write import BatchTask, StreamWriter
from tests.long import full
from tests.spark.sinks import FORMAT, Source, finish, forget, keys, replay, run, values_of
from tests.support.writing import append_foreign, values_in

pytestmark = pytest.mark.spark


def by_key(rows):
    """Return the rows, each in the partition and the task of its key, a number."""
    placed = rows.withColumn("partition", sf.col("key").cast("int"))
    return to_numbered_tasks(placed, 2, sf.col("partition"))


@pytest.fixture
def source(spark, tmp_path):
    return Source(spark, tmp_path / "source")


@pytest.fixture
def checkpoint(tmp_path):
    return str(tmp_path / "checkpoint")


def test_batches_are_appended_once_through_restarts_and_replays(source, checkpoint, path):
    options = {"path": path, "partitions": 3, "job": "copy"}
    rows = source.add("a", *keys(20)) + source.add("b", *keys(5))
    routed = route(source.stream(), options)
    run(routed, checkpoint, **options)
    assert values_of(path) == sorted(rows)
    rows += source.add("c", *keys(9))
    run(routed, checkpoint, **options)
    assert values_of(path) == sorted(rows)
    with open_log(path) as log:
        before = job_progress(log, "copy")
        assert {each.batch and each.batch.id for each in before} == {2}
        assert sum(each.rows for each in before) == len(rows)

    replay(checkpoint, 2)
    run(routed, checkpoint, **options)
    with open_log(path) as log:
        assert job_progress(log, "copy") == before

    replay(checkpoint, 2)
    file = source.folder / "c"
    file.write_text(file.read_text().replace("c-003", "c-xxx"))
    with pytest.raises(InputChangedError) as raised:
        run(routed, checkpoint, **options)
    assert raised.value.job == "copy"
    assert values_of(path) == sorted(rows)

    forget(checkpoint, 1)
    with pytest.raises(CheckpointMismatchError, match="its checkpoint is older than the log"):
        run(routed, checkpoint, **options)
    with pytest.raises(JobMismatchError, match=r"two queries have one job name.*the checkpoint was deleted"):
        run(routed, f"{checkpoint}-new", **options)
    assert values_of(path) == sorted(rows)


@pytest.mark.parametrize("more", [{}, {"orderBy": "timestamp", "maxRecordsPerChunk": 30}])
def test_copy_keeps_the_order_of_each_key_if_spark_moves_rows(spark, checkpoint, path, tmp_path, more):
    """All records have one timestamp, and their values fall. Another exchange mixes them, as a split source may."""
    source = {"path": str(tmp_path / "log"), "partitions": "1", "job": "load"}
    values = [f"{number:03}" for number in range(100, 0, -1)]
    rows = spark.createDataFrame([("k", value) for value in values], "key string, value string")
    routed = route(rows, source, order_by=[sf.desc("value")])
    routed.write.format(FORMAT).mode("append").options(**source).save()
    stream = spark.readStream.format(FORMAT).option("startingOffsets", "earliest").load(source["path"])
    options = {"path": path, "partitions": 1, "job": "copy"} | more
    run(route(stream.repartition(4, "value"), options), checkpoint, **options)
    with open_log(path) as log:
        assert values_in(log, 0) == values


def test_stream_continues_after_a_trim_of_its_rows(source, checkpoint, path):
    """Another writer has the newest chunk of both partitions. The stream has no row in one of them yet."""
    options = {"path": path, "partitions": 2, "job": "copy", "routed": "true"}
    routed = by_key(source.stream())
    source.add("a", "0")
    run(routed, checkpoint, **options)
    with open_log(path) as log:
        for partition in (0, 1):
            for value in ("x", "y"):
                newest = append_foreign(log, partition, value)
            assert log.trim(partition, newest.range.base_offset).start_offset == newest.range.base_offset
    rows = source.add("b", "0", "1")
    run(routed, checkpoint, **options)
    replay(checkpoint, 1)
    run(routed, checkpoint, **options)
    assert values_of(path) == sorted([*rows, "y", "y"])


@pytest.mark.parametrize("now", ["elsewhere", *full("nowhere")])
def test_replayed_row_in_another_partition_is_detected(source, checkpoint, path, now):
    options = {"path": path, "partitions": 2, "job": "copy", "routed": "true"}
    routed = source.stream().withColumn("partition", sf.col("key").cast("int")).repartition("partition")
    source.add("a", "0")
    run(routed, checkpoint, **options)
    replay(checkpoint, 0)
    file = source.folder / "a"
    file.write_text(file.read_text().replace("0 a", "1 a") if now == "elsewhere" else "")
    with pytest.raises(InputChangedError, match=r"partition 0: .* the replay has none .* may have rows twice"):
        run(routed, checkpoint, **options)


def test_a_checkpoint_that_was_put_back_and_then_restored_doubles_no_row(source, checkpoint, path, tmp_path):
    options = {"path": path, "partitions": 2, "routed": "true", "job": "copy"}
    routed = by_key(source.stream())
    rows = []
    for name in "abc":
        rows += source.add(name, "1")
        run(routed, checkpoint, **options)
        if name == "a":
            shutil.copytree(checkpoint, tmp_path / "older")
    rows += source.add("d", "0")
    for file in source.folder.iterdir():
        os.utime(file, (9, 9))  # the files that the older checkpoint lacks are one batch
    together = by_key(source.stream(1_000))
    with pytest.raises(CheckpointMismatchError, match=r"partition 1: .* No row of batch 1 was appended now"):
        run(together, str(tmp_path / "older"), **options)
    run(routed, checkpoint, **options)
    assert values_of(path) == sorted(rows)


def test_second_query_of_a_name_is_rejected_with_existing_rows(source, checkpoint, path):
    options = {"path": path, "partitions": 2, "job": "copy", "routed": "true"}
    routed = by_key(source.stream())
    rows = source.add("a", "1")
    run(routed, checkpoint, **options)
    file = source.folder / "a"
    file.write_text("0 a-001\n1 a-002\n")
    with pytest.raises(JobMismatchError, match=r"partition 1: .* No row of batch 0 was appended now"):
        run(routed, f"{checkpoint}-new", **options)
    assert values_of(path) == rows
    replay(checkpoint, 0)
    told = r"partition 1: .* Of batch 0 the log holds 1 rows in partition 0, 1 rows in partition 1, and these stay"
    with pytest.raises(InputChangedError, match=told):
        run(routed, checkpoint, **options)
    assert values_of(path) == [*rows, "a-001"]


def test_sole_writer_stops_at_a_foreign_record_and_resumes(source, checkpoint, path, spark):
    options = {"path": path, "partitions": 1, "job": "copy", "expectedOffsets": "end"}
    routed = route(source.stream(), options)
    rows = source.add("a", *keys(3))
    run(routed, checkpoint, **options)
    with open_log(path) as log:
        append_foreign(log, 0, "x")
    rows += source.add("b", *keys(3))
    with pytest.raises(ConflictError) as raised:
        run(routed, checkpoint, **options)
    assert raised.value.next_offsets == {0: 4}
    assert values_of(path) == [*rows[:3], "x"]
    run(routed, checkpoint, **options | {"expectedOffsets": json.dumps({"0": 4})})
    assert values_of(path) == [*rows, "x"]
    found = spark.read.format(FORMAT).option("view", "progress").load(path).where("job = 'copy'").collect()
    assert [(row.rows, row.end_offset, row.complete) for row in found] == [(6, 7, False)]


def test_without_a_name_the_query_is_the_job_and_a_table_takes_a_stream(source, checkpoint, path, spark):
    spark.sql(f"CREATE TABLE sink (key STRING, value STRING, partition INT) USING `{FORMAT}`")
    try:
        rows = source.add("a", *keys(20)) + source.add("b", *keys(5))
        with open_log(path) as log:
            log.create(2)
        writer = route(source.stream(), path).writeStream.outputMode("append").trigger(availableNow=True)
        writer = writer.format(FORMAT).option("checkpointLocation", checkpoint).option("path", path)
        writer = writer.queryName("flights live")  # Spark passes the name to its sink as an option
        for _ in range(2):
            query = writer.toTable("sink")
            finish(query)
            replay(checkpoint, 1)
    finally:
        spark.sql("DROP TABLE sink")
    assert values_of(path) == sorted(rows)
    with open_log(path) as log:
        assert log.jobs() == (query.id,)


def test_foreach_batch_is_exactly_once_with_the_full_route(source, checkpoint, path):
    options = {"path": path, "partitions": 2, "job": "copy", "maxRecordsPerChunk": 4}
    attempts = []

    def append(batch, number):
        attempts.append(number)
        one = options | {"batchId": number}
        routed = route(batch, one, order_by=["value"])
        routed.write.format(FORMAT).mode("append").options(**one).save()
        if attempts.count(number) == 1:
            raise RuntimeError("after the write")

    rows = source.add("a", *keys(20)) + source.add("b", *keys(5))
    writer = source.stream().writeStream.trigger(availableNow=True).option("checkpointLocation", checkpoint)
    for _ in range(2):
        with pytest.raises(PySparkException, match="after the write"):
            finish(writer.foreachBatch(append).start())
    query = writer.foreachBatch(append).start()
    finish(query)
    assert attempts == [0, 0, 1, 1]
    assert values_of(path) == sorted(rows)
    with open_log(path) as log:
        for partition in range(2):
            values = values_in(log, partition)
            first = [value for value in values if value < "b"]
            assert values == sorted(first) + sorted(set(values) - set(first))
        assert {each.batch and each.batch.query for each in job_progress(log, "copy")} == {query.id}


def test_batches_of_an_unknown_query_are_appended_once(spark, path):
    """As on Spark Connect and in other threads. The job name identifies their query."""

    def append(number, *values):
        options = {"path": path, "partitions": 1, "job": "copy", "batchId": number}
        frame = spark.createDataFrame([("k", value) for value in values], "key string, value string")
        route(frame, options).write.format(FORMAT).mode("append").options(**options).save()

    for number, values in [(3, "ab"), (3, "ab"), (4, ""), (7, "c"), (7, "c")]:
        append(number, *values)
    for number, values, code in [(7, "d", "INPUT_CHANGED"), (3, "ab", "CHECKPOINT_MISMATCH")]:
        with pytest.raises(PySparkException, match=rf"\[{code}\]"):
            append(number, *values)
    assert values_of(path) == ["a", "b", "c"]


def test_query_and_batches_of_an_unknown_query_are_not_mixed(source, checkpoint, path, spark):
    options = {"path": path, "partitions": 1, "job": "copy"}
    rows = source.add("a", *keys(3))
    run(route(source.stream(), options), checkpoint, **options)
    frame = spark.createDataFrame([("k", "v")], "key string, value string")
    one = options | {"batchId": 1}
    with pytest.raises(PySparkException, match=r"\[JOB_MISMATCH\]"):
        route(frame, one).write.format(FORMAT).mode("append").options(**one).save()
    assert values_of(path) == rows


def test_rejections_name_the_fix(source, checkpoint, path, spark):
    options = {"path": path, "job": "copy", "maxRecordsPerChunk": 4}
    with open_log(path) as log:
        log.create(1)
    rows = source.add("a", *keys(12))
    routed = route(source.stream(), options)
    with pytest.raises(NotRoutedError, match="no column partition"):
        run(source.stream(), checkpoint, **options)
    with pytest.raises(OptionError, match="In a stream, Spark passes the batch"):
        run(routed, checkpoint, **options, batchId=1)
    with pytest.raises(OptionError, match="orderBy must be one or more of key, timestamp, value"):
        run(routed, checkpoint, **options, orderBy="offset")
    with pytest.raises(OptionError, match="cannot sort a stream"):
        route(source.stream(), options, order_by=["value"])
    with pytest.raises(BatchTooLargeError, match=r"Add the option orderBy"):
        run(routed, checkpoint, **options)
    assert values_of(path) == []
    run(routed, checkpoint, **options, orderBy="value")
    assert values_of(path) == rows
    source.add("b", *keys(2))
    source.add("c", *keys(2))
    apart = source.stream().withColumn("partition", sf.lit(0)).repartition(2)
    with pytest.raises(NotRoutedError, match="two tasks of one write"):
        run(apart, f"{checkpoint}-apart", path=path, job="apart", routed="true")


@pytest.mark.parametrize(
    ("mode", "trigger", "said"),
    [
        ("complete", {"availableNow": True}, r"\[OPTION\] .*output mode complete.*outputMode\('append'\)"),
        ("update", {"availableNow": True}, "does not support Update mode"),
        pytest.param(
            "update",
            {"realTime": "5 minutes"},
            "PythonTable is not in the sink allowlist for Real-Time Mode",
            marks=pytest.mark.skipif(not HAS_READ_LIMITS, reason="Spark has no such trigger before 4.2"),
        ),
    ],
)
def test_other_modes_are_refused_and_append_nothing(spark, tmp_path, mode, trigger, said):
    path = str(tmp_path / "flights")
    with open_log(path) as log:
        log.create(1)
    rates = spark.readStream.format("rate").option("rowsPerSecond", 100).option("numPartitions", 1).load()
    frame = rates.select(sf.lit("k").alias("key"), sf.col("value").cast("string"), sf.lit(0).alias("partition"))
    if mode == "complete":
        frame = frame.groupBy("key", "partition").agg(sf.max("value").alias("value"))
    writer = frame.writeStream.format(FORMAT).outputMode(mode).trigger(**trigger).option("routed", "true")
    with pytest.raises(PySparkException, match=said):
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(path).awaitTermination(60)
    assert values_of(path) == []


def test_a_continuous_query_commits_nothing(path):
    """Spark accepts the query, but passes no rows to a Python sink and no task messages to the commit."""
    with open_log(path) as log:
        log.create(1)
    columns = StructType([StructField("key", StringType()), StructField("value", StringType())])
    columns = columns.add("partition", IntegerType())
    writer = ConditionalLogSource({"path": path, "job": "copy", "routed": "true"}).streamWriter(
        columns, overwrite=False
    )
    writer.commit([TaskReport()], 0)
    with pytest.raises(OptionError, match=r"continuous trigger.*Use \.trigger\(processingTime"):
        writer.commit([TaskReport(), None], 1)


class NotingSource(ConditionalLogSource):
    """A source that records in a file which writers Spark's processes receive for a stream."""

    @classmethod
    def name(cls):
        return "noting"

    def streamWriter(self, schema, overwrite):  # noqa: N802 - Spark names it
        writer = super().streamWriter(schema, overwrite)
        assert isinstance(writer, StreamWriter)
        with Path(f"{self.options['path']}-writers").open("a") as file:
            file.write(f"{type(writer.sink).__name__}\n")
        return writer


def test_only_the_writer_of_tasks_is_planned(spark, source, checkpoint, path):
    """If this test fails, Spark commits batches in a process of another name, and each batch is planned twice."""
    spark.dataSource.register(NotingSource)
    options = {"path": path, "partitions": 2, "job": "copy"}
    rows = source.add("a", *keys(9))
    frame = route(source.stream(), options).writeStream.format("noting").options(**options, routed="true")
    query = frame.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    assert values_of(path) == sorted(rows)
    assert Path(f"{path}-writers").read_text().split() == ["BatchTask", "Sink"]


def test_writer_for_commits_only_writes_nothing(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark.sql.worker.python_streaming_sink_runner", ModuleType("runner"))
    columns = StructType([StructField("value", StringType()), StructField("partition", IntegerType())])
    source = ConditionalLogSource({"path": path, "partitions": "2", "job": "copy", "routed": "true"})
    writer = source.streamWriter(columns, overwrite=False)
    assert isinstance(writer, StreamWriter)
    with pytest.raises(TypeError, match="no plan"):
        writer.write(iter([]))
    with pytest.raises(LogNotFoundError), open_log(path) as log:
        log.layout()


def test_preflight_limits_each_batch_and_is_reported_once(path, monkeypatch):
    with open_log(path) as log:
        log.create(1)
    columns = StructType([StructField("key", StringType()), StructField("value", StringType())])
    source = ConditionalLogSource({"path": path, "job": "copy", "routed": "true"})
    columns = columns.add("partition", IntegerType())
    found = Preflight(max_record_bytes=100, notes=("records are deleted after a week",))
    monkeypatch.setattr(ObjectLog, "preflight", lambda _, **__: found)
    with pytest.warns(LogSettingsWarning, match="after a week"):
        first = source.streamWriter(columns, overwrite=False)
    with warnings.catch_warnings(action="error"):
        second = source.streamWriter(columns, overwrite=False)
    for writer in (first, second):
        assert isinstance(writer, StreamWriter)
        assert isinstance(writer.sink, BatchTask)
        assert writer.sink.request.limits.max_record_bytes == 100
