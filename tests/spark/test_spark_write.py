"""Writes through Spark: the guarantees that a user sees."""

import ast
import json
import re
import uuid
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

from spark_cas import bootstrap, error_from_text, open_log, route
from spark_cas.core.errors import (
    ConflictError,
    InputChangedError,
    LogNotFoundError,
    NotRoutedError,
    OptionError,
    SchemaError,
)
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.log.load.planning import pin_plan
from spark_cas.spark.writing.end_markers import MARKER
from tests.long import full
from tests.spark.tasks import failed_tasks
from tests.support.writing import append_foreign, values_in

pytestmark = pytest.mark.spark


def save(df, path, mode="append", **options):
    df.write.format("conditional-log").mode(mode).options(**options).save(path)


def rows_of(path):
    with open_log(path) as log:
        return [
            row
            for partition in range(log.layout().partitions)
            for _, records in log.read(partition, log.bounds(partition).range)
            for row in records.to_pylist()
        ]


@pytest.fixture
def flights(spark):
    ids = spark.range(100, numPartitions=2)
    return ids.select(
        sf.concat(sf.lit("N"), sf.col("id") % 10).alias("key"), sf.col("id").cast("string").alias("value")
    )


@pytest.fixture
def ran(spark):
    """The number of jobs that Spark has run in the test, and the errors of their failed task attempts."""
    group = uuid.uuid4().hex
    spark.sparkContext.setJobGroup(group, "test")
    tracker = spark.sparkContext.statusTracker()

    class Ran:
        @property
        def jobs(self):
            return len(tracker.getJobIdsForGroup(group))

        @property
        def failed_tasks(self):
            return failed_tasks(spark.sparkContext, group)

    yield Ran()
    spark.sparkContext._jsc.sc().clearJobGroup()


def error_of(kind, write):
    with pytest.raises(PySparkException) as caught:
        write()
    error = error_from_text(str(caught.value))
    assert error is not None
    assert type(error) is kind, str(caught.value)
    return error


def test_write_without_an_option_of_route_is_rejected(flights, path):
    conditions = {"job": "load-1", "expectedOffsets": "none", "compare": "partition", "atomic": "partition"}
    routed = route(flights, {"path": path, "partitions": 2, **conditions})
    for name in conditions:
        others = {key: value for key, value in conditions.items() if key != name}
        error = error_of(OptionError, lambda others=others: save(routed, path, partitions=2, **others))
        assert f"route had the option {name}, which the write lacks" in error.message
    save(routed, path, partitions=2, **conditions)
    assert len(rows_of(path)) == 100


def refused(kind, write):
    return error_of(kind, write).message


def test_a_load_and_the_same_load_again(spark, flights, path, ran):
    options = {"path": path, "job": "load-1", "partitions": 4}
    for _ in range(2):
        before = ran.jobs
        save(route(flights, options), **options)
        # Other tests check that a rejected write runs no job. An accepted write runs some, so the counter works.
        assert ran.jobs > before
        read = spark.read.format("conditional-log").load(path)
        assert_df_equality(
            read.select(sf.col("key").cast("string"), sf.col("value").cast("string")),
            flights,
            ignore_row_order=True,
            ignore_nullable=True,
        )
    changed = flights.where("value != '17'")
    message = refused(InputChangedError, lambda: save(route(changed, options), **options))
    assert "Nothing was appended" in message
    assert len(rows_of(path)) == 100


def test_a_conflict_is_raised_once_and_not_tried_four_times(flights, path, ran):
    save(route(flights, {"path": path, "job": "load-1", "partitions": 2}), path, job="load-1", partitions=2)
    stale = route(flights, path)
    before = ran.failed_tasks
    stale_offsets = '{"0": 1, "1": 1}'
    error = error_of(ConflictError, lambda: save(stale, path, job="load-2", expectedOffsets=stale_offsets))
    assert error.next_offsets.keys() == {0, 1}
    assert (before, ran.failed_tasks) == ([], [])
    assert len(rows_of(path)) == 100


def test_a_record_where_a_write_has_no_rows_refuses_it_with_nothing_anywhere(spark, flights, path):
    save(route(flights, {"path": path, "partitions": 4, "job": "load-1"}), path, partitions=4, job="load-1")
    few = route(flights.where("key = 'N1'"), path)
    (mine,) = [row.partition for row in few.where("partition >= 0").select("partition").distinct().collect()]
    seen = bootstrap(spark, path).expected_offsets
    with open_log(path) as log:
        for partition in {0, 1, 2, 3} - {mine}:
            append_foreign(log, partition, "foreign")
    before = rows_of(path)
    error = error_of(ConflictError, lambda: save(few, path, job="late", expectedOffsets=seen))
    assert rows_of(path) == before
    assert len(error.next_offsets.items() - {int(each): end for each, end in json.loads(seen).items()}.items()) == 3
    save(few, path, job="late", expectedOffsets=json.dumps(error.next_offsets))
    assert len(rows_of(path)) == len(before) + 10


def test_conflict_of_all_partitions_is_fixed_in_one_run(flights, path):
    save(route(flights, {"path": path, "partitions": 4, "job": "load-1"}), path, partitions=4, job="load-1")
    with open_log(path) as log:
        pin_plan(log, "late", ExpectedOffsets("end"))
        for partition in range(4):
            append_foreign(log, partition, "foreign")
    late = route(flights, path)
    error = error_of(ConflictError, lambda: save(late, path, job="late"))
    assert (error.job, error.appended_rows, error.next_offsets.keys()) == ("late", {}, {0, 1, 2, 3})
    save(late, path, job="late", expectedOffsets=json.dumps(error.next_offsets))
    assert len(rows_of(path)) == 204


def test_rows_that_were_moved_after_route_are_rejected(flights, path):
    moved = route(flights, {"path": path, "partitions": 4, "job": "moved"}).repartition(3)
    refused(NotRoutedError, lambda: save(moved, path, partitions=4, job="moved"))
    assert rows_of(path) == []


def test_rows_that_were_not_routed_are_written_at_least_once(flights, path):
    save(flights, path, partitions=4, idempotence="off")
    with open_log(path) as log:
        found = {values_in(log, partition)[0]: partition for partition in range(4)}
        assert sorted(value for partition in range(4) for value in values_in(log, partition)) == sorted(
            row.value for row in flights.collect()
        )
    assert {row.value: row.partition for row in route(flights, path).collect()}.items() >= found.items()


def test_rows_without_their_end_markers_are_rejected(flights, path):
    options = {"path": path, "partitions": 4, "job": "filtered"}
    refused(NotRoutedError, lambda: save(route(flights, options).where("key IS NOT NULL"), **options))
    assert rows_of(path) == []


def test_end_markers_that_were_routed_as_rows_are_rejected(flights, path):
    options = {"path": path, "partitions": 4, "job": "twice"}
    rows = route(flights, options).select("key", "value")
    refused(NotRoutedError, lambda: save(route(rows, options), **options))
    assert MARKER.encode() not in {row["value"] for row in rows_of(path)}


def test_all_columns_arrive(spark, path):
    text = """
        SELECT * FROM VALUES
          (binary('a'), binary('1'), array(struct('h' AS key, binary('x') AS value)), 1, timestamp_millis(-5)),
          (NULL, binary('2'), NULL, 0, NULL),
          (binary('b'), NULL, array(), 0, timestamp_micros(1000))
        AS t(key, value, headers, partition, timestamp)
    """
    save(spark.sql(text).coalesce(1), path, job="load-1", partitions=2, routed=True)
    first, second, third = rows_of(path)
    assert (first["key"], first["value"]) == (None, b"2")
    assert first["timestamp"].year > 2000
    assert (second["key"], second["value"], second["timestamp"].microsecond) == (b"b", None, 1000)
    assert third["headers"] == [{"key": "h", "value": b"x"}]
    assert third["timestamp"].year == 1969


@pytest.mark.parametrize("micros", [1, -1, 1999])
def test_microseconds_are_rejected(spark, path, micros):
    rows = spark.sql(f"SELECT 'k' AS key, 'v' AS value, 0 AS partition, timestamp_micros({micros}) AS timestamp")
    save(rows.drop("timestamp"), path, job="load-1", partitions=1, routed=True)
    refused(SchemaError, lambda: save(rows, path, job="load-2", routed=True))
    assert len(rows_of(path)) == 1


REFUSED_AT_ONCE = [
    (NotRoutedError, {}, {}, r"spark_cas\.route"),
    (NotRoutedError, {"partition": None}, {"routed": True}, r"spark_cas\.route"),
    (SchemaError, {"secret": "1"}, {"routed": True}, "'secret'"),
    (SchemaError, {"key": "1L"}, {"routed": True}, "found bigint"),
    (OptionError, {}, {"routed": True, "jbo": "x"}, r"'jbo'\. Did you mean job\?"),
    (OptionError, {}, {"routed": True, "mode": "overwrite"}, r"\.mode\('append'\)"),
    (OptionError, {}, {"routed": True, "path": None}, r"WITH \(path="),
]


@pytest.mark.parametrize("case", REFUSED_AT_ONCE, ids=lambda case: case[3])
def test_refused_before_any_task_runs(flights, path, ran, case):
    kind, change, options, said = case
    df = flights.withColumn("partition", sf.lit(0))
    for name, expression in change.items():
        df = df.drop(name) if expression is None else df.withColumn(name, sf.expr(expression))
    given = {"path": path, "partitions": 1, **options}
    message = refused(kind, lambda: save(df, **given))
    assert re.search(said, message)
    assert ran.jobs == 0
    assert not Path(path).exists()


def options_in(message):
    """Return the options in the call of `route` in an error, each with the value ``...``."""
    (call,) = re.findall(r"df = spark_cas\.route\(df, ({.*?})\)", message)
    return ast.literal_eval(call)


@pytest.mark.parametrize("unrouted", ["key, value", "key, value, 0 AS partition"])
def test_error_has_the_call_of_route_with_the_names_of_the_options(flights, path, unrouted):
    options = {"partitions": 2, "job": "load-1", "maxRecordsPerChunk": 7, "routed": False, "path": path}
    rows = flights.selectExpr(*unrouted.split(", "))
    names = options_in(message := refused(NotRoutedError, lambda: save(rows, **options)))
    assert names == dict.fromkeys(options, ...)
    assert "load-1" not in message
    assert path not in message
    save(route(rows, {name: options[name] for name in names}), **options)
    assert len(rows_of(path)) == 100


def test_error_of_a_stream_has_the_call_of_route(flights, path, tmp_path):
    flights.write.parquet(f"{tmp_path}/in")
    rows = flights.sparkSession.readStream.schema("key STRING, value STRING").parquet(f"{tmp_path}/in")
    options = {"path": path, "partitions": 2, "job": "stream-1"}
    writer = rows.writeStream.format("conditional-log").options(**options)

    def run():
        query = writer.option("checkpointLocation", f"{tmp_path}/checkpoint").trigger(availableNow=True).start()
        query.awaitTermination(100)

    assert options_in(refused(NotRoutedError, run)) == dict.fromkeys(options, ...)


@pytest.mark.parametrize(("adaptive", "shuffles"), [("true", 1), ("false", 0)])
def test_a_repartition_does_not_replace_route(flights, path, ran, adaptive, shuffles):
    """With adaptive execution, Spark runs the shuffle of the input before it requests the writer."""
    df = flights.withColumn("partition", sf.lit(0)).repartition(2)
    df.sparkSession.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        message = refused(NotRoutedError, lambda: save(df, path, partitions=1))
    finally:
        df.sparkSession.conf.unset("spark.sql.adaptive.enabled")
    assert "spark_cas.route" in message
    assert ran.jobs == shuffles
    assert not Path(path).exists()


def test_ids_outside_the_layout_are_refused_while_writing(flights, path, ran):
    df = flights.withColumn("partition", sf.expr("IF(value = '7', -1, 0)")).coalesce(1)
    message = refused(NotRoutedError, lambda: save(df, path, partitions=2, routed=True))
    assert "the log has 2 partitions" in message
    assert ran.failed_tasks == []


def test_rows_of_one_partition_in_two_tasks_name_route(flights, path):
    df = flights.withColumn("partition", sf.lit(0))
    message = refused(NotRoutedError, lambda: save(df, path, partitions=1, routed=True))
    assert "two tasks" in message
    assert "spark_cas.route" in message


def test_an_empty_frame_completes_its_job(spark, flights, path):
    save(route(flights.limit(0), {"path": path, "partitions": 3, "job": "none"}), path, job="none", partitions=3)
    offsets = spark.read.format("conditional-log").option("view", "offsets").load(path)
    assert [row.end_offset for row in offsets.collect()] == [0, 0, 0]
    assert spark.read.format("conditional-log").load(path).count() == 0
    assert spark.read.format("conditional-log").option("view", "progress").load(path).count() == 0
    refused(InputChangedError, lambda: save(route(flights, path), path, job="none"))


def test_rows_of_a_read_can_be_written(spark, flights, path, tmp_path):
    save(route(flights, {"path": path, "job": "load-1", "partitions": 2}), path, job="load-1", partitions=2)
    read = spark.read.format("conditional-log").option("includeHeaders", True).load(path)
    copy = str(tmp_path / "copy")
    refused(NotRoutedError, lambda: save(read, copy, job="copy", partitions=2))
    save(read, copy, job="copy", partitions=2, routed=True)
    assert rows_of(copy) == rows_of(path)
    routed = route(read, {"path": copy, "job": "again"}, by="partition", order_by=["offset"])
    save(routed, copy, job="again")
    assert len(rows_of(copy)) == 200


def test_large_arrow_types_are_accepted(spark, flights, path):
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        df = route(
            flights.withColumn("key", sf.expr("IF(value < '5', key, NULL)")),
            {"path": path, "partitions": 2, "job": "j"},
        )
        save(df, path, job="j", partitions=2)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    assert len(rows_of(path)) == 100
    assert spark.read.format("conditional-log").load(path).count() == 100


def test_writing_and_reading_in_sql(spark, flights, path):
    route(flights, {"path": path, "partitions": 2, "job": "sql-1"}).createOrReplaceTempView("routed")
    spark.sql("CREATE TABLE t (key STRING, value STRING, partition INT) USING `conditional-log`")
    try:
        message = refused(OptionError, lambda: spark.sql("INSERT INTO t SELECT key, value, partition FROM routed"))
        assert "INSERT INTO t WITH (path=" in message
        assert "WITH (path=" in refused(OptionError, lambda: spark.table("t").collect())
        where = f"path='{path}', job='sql-1', partitions='2'"
        spark.sql(f"INSERT INTO t WITH ({where}) SELECT key, value, partition FROM routed")  # noqa: S608
    finally:
        spark.sql("DROP TABLE t")
    assert len(rows_of(path)) == 100
    spark.sql("CREATE TABLE r USING `conditional-log`")
    try:
        (row,) = spark.sql(f"SELECT count(*) AS n FROM r WITH (path='{path}')").collect()  # noqa: S608
        spark.sql(f"CREATE VIEW of_log AS SELECT * FROM r WITH (path='{path}')")  # noqa: S608
        assert spark.table("of_log").count() == row.n == 100, "a view keeps the options that a table does not"
    finally:
        spark.sql("DROP VIEW IF EXISTS of_log")
        spark.sql("DROP TABLE r")


def test_rows_that_sql_distributes_are_appended_once_without_route(spark, flights, path):
    flights.selectExpr("key", "value", "CAST(pmod(hash(key), 4) AS INT) AS partition").createOrReplaceTempView(
        "given"
    )
    spark.sql("CREATE TABLE d (key STRING, value STRING, partition INT) USING `conditional-log`")
    where = f"path='{path}', job='sql-2', partitions='4', routed='true'"
    insert = f"INSERT INTO d WITH ({where}) SELECT * FROM given"  # noqa: S608
    try:
        for tasks in (7, 3):
            spark.conf.set("spark.sql.shuffle.partitions", tasks)
            spark.sql(f"{insert} DISTRIBUTE BY partition SORT BY partition, key, value")
            assert len(rows_of(path)) == 100
        refused(InputChangedError, lambda: spark.sql(f"{insert} WHERE key > 'N1' DISTRIBUTE BY partition"))
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", 2)
        spark.sql("DROP TABLE d")


@pytest.mark.parametrize("options", ["OPTIONS (path '{}')", *full("LOCATION '{}'", "TBLPROPERTIES (path '{}')")])
def test_options_of_a_table_are_not_passed(spark, path, options):
    """If Spark passes one on, docs/spark.md and the error text can recommend it."""
    with open_log(path) as log:
        log.create(1)
    spark.sql("CREATE TABLE t USING `conditional-log` " + options.format(path))
    try:
        message = refused(OptionError, lambda: spark.table("t").collect())
    finally:
        spark.sql("DROP TABLE t")
    assert "Spark does not pass the options of a table" in message


@pytest.mark.parametrize("atomic", ["true", "load"])
def test_atomic_at_the_write_alone_is_enough_in_a_directory(spark, flights, path, atomic):
    with open_log(path) as log:
        log.create(2)
    save(route(flights, path), path, atomic=atomic)
    assert len(rows_of(path)) == 100


WRITE_TO = {
    "format and path": lambda df, path: df.writeTo(f"`conditional-log`.`{path}`"),
    "path": lambda df, path: df.writeTo(f"`{path}`").using("conditional-log"),
    "name and path": lambda df, path: df.writeTo("no_table").using("conditional-log").option("path", path),
}


@pytest.mark.parametrize("name", ["format and path", *full("path", "name and path")])
def test_write_to_a_log_without_a_table_is_rejected_by_spark(spark, path, name):
    with open_log(path) as log:
        log.create(1)
    rows = route(spark.sql("SELECT 'a' AS key, 'b' AS value"), path)
    with pytest.raises(PySparkException) as caught:
        WRITE_TO[name](rows, path).append()
    assert caught.value.getCondition() == "TABLE_OR_VIEW_NOT_FOUND"
    assert rows_of(path) == []


def test_write_to_a_table_appends(spark, path):
    options = {"path": path, "partitions": "2", "job": "load"}
    rows = route(spark.sql("SELECT 'a' AS key, 'b' AS value"), options)
    spark.sql("CREATE TABLE t (key STRING, value STRING, partition INT) USING `conditional-log`")
    try:
        rows.writeTo("t").options(**options).append()
    finally:
        spark.sql("DROP TABLE t")
    assert [row["value"] for row in rows_of(path)] == [b"b"]


def test_routed_rows_before_others_are_rejected_and_appended_rows_stay(spark, flights, path):
    options: dict[str, str | float] = {"path": path, "partitions": 2, "job": "load"}
    routed, others = route(flights, options), flights.withColumn("partition", sf.lit(0))
    refused(NotRoutedError, lambda: save(routed.union(others), path, job="load", partitions=2))
    values = [row["value"] for row in rows_of(path)]
    assert len(values) == len(set(values)) <= 100, "at most the rows of one of the two frames"
    refused(NotRoutedError, lambda: save(others.union(routed), f"{path}-2", job="load", partitions=2))
    with pytest.raises(LogNotFoundError):
        rows_of(f"{path}-2")


def test_rows_that_expect_offsets_get_them_or_are_refused_by_number(spark, path):
    numbered = spark.range(50, numPartitions=2).select(
        sf.lit("N1").alias("key"),
        (99 - sf.col("id")).cast("string").alias("value"),
        sf.col("id").alias("expected_offset"),
    )
    routed = route(numbered, {"path": path, "partitions": 1, "job": "first"})
    save(routed, path, partitions=1, job="first", maxRecordsPerChunk=20, expectedOffsets="none")
    assert [int(row["value"]) for row in rows_of(path)] == list(range(99, 49, -1))
    wrong = numbered.withColumn("expected_offset", sf.expr("expected_offset + IF(expected_offset < 30, 50, 51)"))
    with pytest.raises(PySparkException) as caught:
        save(route(wrong, path), path, job="second", maxRecordsPerChunk=20)
    error = error_from_text(str(caught.value))
    assert isinstance(error, ConflictError)
    assert (error.row, error.expected_offset, error.actual_offset) == (30, 81, 80)
    assert len(rows_of(path)) == 70
