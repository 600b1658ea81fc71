"""Routing: where rows go, in which order, and the mark; on classic sessions and on Spark Connect."""

import warnings
from weakref import WeakKeyDictionary

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as sf

from spark_cas import open_log, route
from spark_cas.core.errors import LogNotFoundError, OptionError, SchemaError
from spark_cas.core.partitioner import partition_of
from spark_cas.core.records import RECORDS
from spark_cas.options.parse import parse_route
from spark_cas.spark import setup
from spark_cas.spark.writing.end_markers import MARKER, without_end_markers
from spark_cas.spark.writing.route import route_rows

pytestmark = pytest.mark.spark


@pytest.fixture
def log_path(path):
    with open_log(path) as log:
        log.create(4)
    return path


def some(session, expression="concat('N', id % 7)"):
    return session.range(60).select(
        sf.expr(expression).alias("key"), sf.col("id").cast("string").cast("binary").alias("value")
    )


def without_markers(routed):
    return routed.where("partition >= 0")


def placed(routed):
    """(task, key, value, partition) of all rows, in the order in which tasks see them."""
    columns = (sf.spark_partition_id().alias("task"), "key", "value", "partition")
    rows = without_markers(routed.select(*columns)).collect()
    return [(row.task, row.key, bytes(row.value), row.partition) for row in rows]


def expected_partitions(rows):
    keys = [None if key is None else key.encode() for _, key, _, _ in rows]
    records = {"key": pa.array(keys, pa.binary()), "value": pa.array([value for *_, value, _ in rows], pa.binary())}
    empty = {name: pa.nulls(len(rows), RECORDS.field(name).type) for name in ("headers", "timestamp")}
    return partition_of(pa.RecordBatch.from_pydict({**records, **empty}, schema=RECORDS), 4).to_pylist()


def test_rows_go_where_kafka_puts_them_each_partition_in_one_task(spark, log_path):
    rows = placed(route(some(spark), log_path))
    assert [row[3] for row in rows] == expected_partitions(rows)
    assert all(task == partition for task, _, _, partition in rows)
    assert len({partition for *_, partition in rows}) > 1


def test_rows_without_a_key_go_by_their_content(spark, log_path):
    rows = placed(route(some(spark, "IF(id < 30, NULL, concat('N', id % 7))"), log_path))
    assert [row[3] for row in rows] == expected_partitions(rows)
    assert len({partition for _, key, _, partition in rows if key is None}) == 4


HEADERS_OF_ID = """CASE id % 3 WHEN 0 THEN array(struct('h' AS key, binary(string(id)) AS value))
                              WHEN 1 THEN array() END"""


def test_headers_are_hashed_without_a_key_and_null_equals_empty(spark, log_path):
    frame = spark.range(60).select(
        sf.expr("IF(id < 50, NULL, string(id))").alias("key"),
        sf.lit(b"same").alias("value"),
        sf.expr(HEADERS_OF_ID).cast("array<struct<key:string,value:binary>>").alias("headers"),
    )
    rows = without_markers(route(frame, log_path)).select("key", "value", "headers", "partition").collect()
    records = [
        {
            "key": None if row.key is None else row.key.encode(),
            "value": bytes(row.value),
            "headers": None if row.headers is None else [each.asDict() for each in row.headers],
            "timestamp": None,
        }
        for row in rows
    ]
    assert [row.partition for row in rows] == partition_of(
        pa.RecordBatch.from_pylist(records, RECORDS), 4
    ).to_pylist()
    assert len({row.partition for row in rows if row.key is None and row.headers}) == 4
    assert len({row.partition for row in rows if row.key is None and not row.headers}) == 1


def test_rows_are_sorted_totally(spark, log_path):
    rows = placed(route(some(spark), log_path))
    assert rows == sorted(rows, key=lambda row: (row[0], row[1], row[2]))
    last_first = placed(route(some(spark), log_path, order_by=[sf.col("value").desc()]))
    assert last_first == sorted(sorted(last_first, key=lambda r: r[2], reverse=True), key=lambda r: r[0])


def test_of_rows_with_one_key_those_of_a_read_keep_their_order(spark, log_path):
    read = some(spark).withColumn("offset", -sf.col("value").cast("string").cast("long"))
    values = [int(value) for task, key, value, _ in placed(route(read, log_path)) if key == "N3"]
    assert values == sorted(values, reverse=True)


def test_headers_with_a_collation_are_sorted_by_bytes(spark, log_path):
    names = "array(struct(cast(IF(id % 2 = 0, 'h', 'H') AS string COLLATE UTF8_LCASE) AS key, binary('1') AS value))"
    same = spark.range(60).select(
        sf.lit("k").alias("key"), sf.lit("v").alias("value"), sf.expr(names).alias("headers")
    )
    rows = without_markers(route(same, log_path)).select(sf.expr("headers[0].key").alias("name")).collect()
    assert [row.name for row in rows] == ["H"] * 30 + ["h"] * 30


EXPECTED = "CASE int(string(value)) % 3 WHEN 0 THEN 90L - int(string(value)) WHEN 1 THEN -1L END"


def test_rows_are_sorted_by_expected_offset_nulls_last(spark, log_path):
    claims = some(spark).withColumn("expected_offset", sf.expr(EXPECTED))
    routed = without_markers(route(claims, log_path))
    rows = routed.select("partition", "expected_offset", "key", "value").collect()
    given = [(row.partition, row.expected_offset) for row in rows if row.expected_offset not in (None, -1)]
    assert given == sorted(given)
    rest = [row for row in rows if row.expected_offset in (None, -1)]
    for partition in range(4):
        there = [row.expected_offset in (None, -1) for row in rows if row.partition == partition]
        assert there == sorted(there)
    assert [(r.partition, r.key, r.value) for r in rest] == sorted((r.partition, r.key, r.value) for r in rest)


def test_expected_offsets_of_keys_do_not_change_the_order(spark, log_path):
    options = {"path": log_path, "job": "job", "compare": "key"}
    claims = some(spark).withColumn("expected_offset", sf.expr(EXPECTED))
    plain = route(some(spark), options).select("partition", "key", "value").collect()
    assert route(claims, options).select("partition", "key", "value").collect() == plain


NULLS = "array(NULL, 'b', 'a')[int(id % 3)]"


def rows_with_nulls(spark, *, claims=False):
    frame = spark.range(60).select(
        sf.expr(NULLS).alias("key"), sf.expr("IF(id % 7 = 0, NULL, string(id))").alias("value")
    )
    return frame.withColumn("expected_offset", sf.expr("IF(key IS NULL, NULL, -1L)")) if claims else frame


def ends_of(rows):
    """Split the rows of each task into those before the last one, and the last one, as (partition, key, value)."""
    by_task = [[row[1:] for row in rows if row.task == task] for task in range(4)]
    return [found[:-1] for found in by_task], [found[-1] for found in by_task]


ENDS = [(task - 4, None, MARKER) for task in range(4)]


def with_task(routed):
    return routed.select(sf.spark_partition_id().alias("task"), "partition", "key", "value").collect()


@pytest.mark.parametrize("order_by", [[], ["key"], ["value"], ["value", "key"]])
@pytest.mark.parametrize("claims", [False, True])
def test_each_task_ends_with_an_end_marker(spark, log_path, order_by, claims):
    rows = with_task(route(rows_with_nulls(spark, claims=claims), log_path, order_by=order_by))
    assert len(rows) == 60 + 4
    before, ends = ends_of(rows)
    assert ends == ENDS
    assert all(row[0] == task for task, found in enumerate(before) for row in found)


@pytest.mark.parametrize("order", ["desc_nulls_first", "asc_nulls_last"])
def test_each_task_ends_with_an_end_marker_if_the_order_is_of_columns(spark, log_path, order):
    order_by = [getattr(sf, order)("value")]
    rows = route_rows(rows_with_nulls(spark), parse_route({"path": log_path}), order_by=order_by, has_columns=True)
    before, ends = ends_of(with_task(rows))
    assert ends == ENDS
    assert sum(map(len, before)) == 60


def test_expression_in_the_order_leaves_end_markers_out(spark, log_path):
    expression = sf.expr("coalesce(value, '0')")
    rows = route(rows_with_nulls(spark), log_path, order_by=[expression]).collect()
    assert len(rows) == 60
    with pytest.raises(OptionError):
        route(rows_with_nulls(spark), {"path": log_path, "atomic": "true"}, order_by=[expression])


def test_routed_rows_are_routed_again_without_their_end_markers(spark, log_path):
    once = route(rows_with_nulls(spark), log_path)
    assert route(once, log_path).collect() == once.collect()
    assert route(once, log_path, by="partition").collect() == once.collect()


def test_only_end_markers_are_removed(spark, log_path):
    once = route(rows_with_nulls(spark), log_path)
    metadata = once.schema["partition"].metadata
    others = once.withColumn("partition", sf.when(sf.col("partition") > 1, sf.col("partition"))).withMetadata(
        "partition", metadata
    )
    assert without_end_markers(others).where("partition IS NULL AND key IS NOT NULL").count() > 0
    assert without_end_markers(once).count() == 60
    assert without_end_markers(once.drop("value")).count() == 60


def test_existing_partition_ids_are_kept(spark, log_path):
    df = some(spark).withColumn("partition", sf.expr("length(key) + 1"))
    assert {partition for *_, partition in placed(route(df, log_path, by="partition"))} == {3}


def test_the_mark_is_in_the_metadata(spark, log_path):
    routed = route(some(spark), log_path)
    marks = {"partitions": 4, "layout_epoch": 0, "end_markers": "partition", "sorted": 1, "partitioner": "murmur2"}
    assert routed.schema["partition"].metadata == {"spark_cas": marks}


def test_a_log_still_to_be_created_needs_a_count(spark, path):
    routed = route(some(spark), {"path": path, "partitions": 3, "job": "j"})
    assert routed.schema["partition"].metadata["spark_cas"]["partitions"] == 3
    with pytest.raises(LogNotFoundError, match="'partitions'"):
        route(some(spark), path)


def test_bad_calls_are_refused(spark, log_path):
    with pytest.raises(OptionError, match="option partitions is 3, but the log has 4"):
        route(some(spark), {"path": log_path, "partitions": 3, "job": "j"})
    with pytest.raises(OptionError, match="Did you mean job"):
        route(some(spark), {"path": log_path, "jbo": "j"})
    with pytest.raises(OptionError, match="by='key' or by='partition'"):
        route(some(spark), log_path, by="value")  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match=r"needs a column key \(binary or string\); found: id"):
        route(spark.range(1), log_path)
    with pytest.raises(SchemaError, match="key must be binary or string, found bigint"):
        route(some(spark, "id"), log_path)
    with pytest.raises(SchemaError, match="partition must be int, found bigint"):
        route(some(spark).withColumn("partition", sf.lit(1).cast("long")), log_path, by="partition")


def test_workers_are_checked_until_one_has_this_package(spark, path, monkeypatch):
    monkeypatch.setattr(setup, "_known", WeakKeyDictionary())
    context = spark.sparkContext
    context.setJobGroup("route", "asks")

    def jobs(frame):
        route(frame, {"path": path, "partitions": "4", "job": "load"})
        return len(context.statusTracker().getJobIdsForGroup("route"))

    rows = some(spark)
    # For a missing log, only the planner has run spark_cas.
    assert [jobs(rows), jobs(rows)] == [0, 0]
    with open_log(path) as log:
        log.create(4)
    try:
        assert [jobs(rows), jobs(rows)] == [1, 1]
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)


IDLE = "spark.sql.execution.pyspark.udf."


@pytest.mark.parametrize(
    ("kills", "timeout", "is_warned"),
    [
        ("true", "5", True),
        ("true", "5s", True),
        ("true", "3min", True),
        ("TRUE", "160000ms", True),
        ("true", "161", False),
        ("false", "5", False),
    ],
)
def test_settings_that_kill_waiting_workers_are_warned_of(spark, log_path, kills, timeout, is_warned):
    session = spark.newSession()
    session.conf.set(f"{IDLE}killOnIdleTimeout", kills)
    session.conf.set(f"{IDLE}idleTimeoutSeconds", timeout)
    # By default a load may wait an hour for its load lock. The retry deadline is 120 s, and a fenced task waits 30 s.
    options = {"path": log_path} | ({} if timeout == "3min" else {"lockWaitTimeout": "10s"})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        route(some(session), options)
    assert any(f"{IDLE}killOnIdleTimeout" in str(each.message) for each in caught) == is_warned


TOPIC = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "flights"}
STORE = {"path": "/flights"}


@pytest.mark.parametrize(
    ("options", "streaming", "seconds"),
    [
        (STORE, False, 120 + 30 + 3600),
        (STORE | {"store.retry_timeout": "9s", "fencedRetryWaitMs": "2000", "lockWaitTimeout": "5s"}, False, 16),
        (STORE | {"expectedOffsets": "none"}, False, 120 + 30),
        (STORE | {"compare": "key"}, False, 120 + 30),
        (STORE | {"expectedOffsets": "none", "atomic": "load"}, False, 120 + 30 + 3600),
        (STORE, True, 120 + 30),
        (STORE | {"job": "load", "batchId": "7"}, False, 120 + 30),
        (STORE | {"atomic": "load"}, True, 120 + 30 + 3600),
        (TOPIC, False, 120 + 120 + 30 + 3600),
        (TOPIC | {"kafka.delivery.timeout.ms": "9000", "openTransactionWaitMs": "1000"}, True, 9 + 1 + 30),
        (TOPIC | {"atomic": "load"}, True, 120 + 120 + 30),
    ],
)
def test_longest_wait_of_a_worker_is_the_sum_of_its_waits(options, streaming, seconds):
    assert parse_route(options).longest_wait_seconds(streaming=streaming) == seconds


def test_settings_that_spark_does_not_show_are_not_warned_of(spark, monkeypatch):
    def get(*_):
        raise AnalysisException("[CONFIG_NOT_AVAILABLE] Configuration is not available.")

    monkeypatch.setattr(type(spark.conf), "get", get)
    setup.warn_of_idle_timeout(spark, 120)


@pytest.mark.parametrize(
    ("column", "expression", "kind", "fix"),
    [
        ("value", "struct(id, 'x' AS note)", "struct<id:bigint,note:string>", "to_json(value)"),
        ("value", "map('a', id)", "map<string,bigint>", "to_json(value)"),
        ("value", "array(id)", "array<bigint>", "to_json(value)"),
        ("value", "id", "bigint", "Cast it"),
        ("key", "struct(id)", "struct<id:bigint>", "to_json(key)"),
        ("headers", "map('h', 'x')", "map<string,string>", "map_entries(headers)"),
    ],
)
def test_wrong_type_of_a_column_is_rejected_with_its_fix(spark, log_path, column, expression, kind, fix):  # noqa: PLR0917
    columns = {"key": "string(id)", "value": "string(id)", "partition": "0", column: expression}
    frame = spark.range(3).selectExpr(*(f"{each} AS {name}" for name, each in columns.items()))
    for by in ("key", "partition"):
        with pytest.raises(SchemaError) as raised:
            route(frame, log_path, by=by)
        message = raised.value.message
        assert (f"column {column} must be" in message, kind in message, fix in message) == (True, True, True), message


def test_fixes_for_wrong_types_give_columns_that_a_write_accepts(spark, log_path):
    frame = spark.range(3).selectExpr("string(id) AS key", "struct(id) AS value", "map('h', 'x') AS headers")
    headers = sf.expr(
        "transform(map_entries(headers), e -> struct(cast(e.key as string) as key, cast(e.value as binary) as value))"
    )
    fixed = frame.withColumn("value", sf.to_json("value")).withColumn("headers", headers)
    route(fixed, log_path).write.format("conditional-log").mode("append").save(log_path)
    read = spark.read.format("conditional-log").option("includeHeaders", "true").load(log_path)
    assert sorted(bytes(row.value) for row in read.collect()) == [b'{"id":%d}' % each for each in range(3)]
    assert {row.headers[0].key for row in read.collect()} == {"h"}
