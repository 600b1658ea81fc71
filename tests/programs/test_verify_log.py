"""The comparison of a log with a frame: equal content, and each kind of difference."""

import datetime as dt
import json
from pathlib import Path

import pytest
from pyspark.sql import functions as sf

from jobs.verify_log import main
from spark_cas import bootstrap, open_log, route, verify_log
from spark_cas.core.errors import OptionError, SchemaError, TruncatedError
from spark_cas.spark.reading.verify_log import Difference
from spark_cas.spark.schema import RECORDS_AND_HEADERS
from tests.kafka import clients
from tests.support.writing import append_foreign, records_in

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

TIME = dt.datetime(2020, 5, 17, 12, 30, 0, 250_000, tzinfo=dt.UTC)


@pytest.fixture
def options(path):
    """The options of a log that the first write creates."""
    return {"path": path}


def write(df, options, order_by=(), by="key", job="load-1"):
    given = {**options, "job": job, "partitions": 2}
    routed = route(df, given, by=by, order_by=order_by).drop("at")
    routed.write.format("conditional-log").mode("append").options(**given).save()


def found_in(df, options, **more):
    found = verify_log(df, options, **more)
    return found.missing, found.unexpected, found.out_of_order


def test_a_log_holds_what_was_written_to_it_and_nothing_else_is_the_same(spark, options):
    rows = [(f"k{n % 5}" if n % 7 else None, f"v{n % 9}" if n % 4 else None, n) for n in range(200)]
    df = spark.createDataFrame([*rows, *rows[:20]], "key STRING, value STRING, at BIGINT")
    df = df.withColumn("timestamp", sf.lit(TIME) + sf.make_dt_interval(secs=sf.col("at")))
    df = df.withColumn("headers", sf.lit(None).cast(RECORDS_AND_HEADERS["headers"].dataType))
    write(df, options, order_by=["at"])
    found = verify_log(df, options, order_by=["at"])
    assert (found.holds, found.expected_rows, found.actual_rows, found.out_of_order) == (True, 220, 220, 0)
    assert found.expected_digest == found.actual_digest
    assert found.differences == ()

    once = df.dropDuplicates(["at"])
    changed = once.withColumn("value", sf.when(sf.col("at") == 33, "other").otherwise(sf.col("value")))
    found = verify_log(changed, options, first=1)
    assert (found.missing, found.unexpected, found.out_of_order) == (1, 21, None)
    assert found.expected_digest != found.actual_digest
    unexpected, missing = found.differences
    assert (unexpected.kind, unexpected.expected, unexpected.actual) == ("unexpected", 1, 2)
    assert missing == Difference("missing", b"k3", b"other", None, None, 1, 0)
    later = df.withColumn("timestamp", sf.col("timestamp") + sf.expr("INTERVAL 1 MILLISECOND"))
    assert found_in(later, options) == (220, 220, None)
    with pytest.raises(SchemaError, match="no column value"):
        verify_log(df.select("key"), options)


def test_end_markers_of_route_are_not_compared(spark, options):
    frame = spark.range(20).selectExpr("CAST(id % 3 AS STRING) AS key", "CAST(id AS STRING) AS value")
    write(frame, options)
    no_option = {**options, "endingOffsets": None}
    assert verify_log(route(frame, options), no_option).holds
    assert bootstrap(spark, {**options, "includeHeaders": None}).records.count() == 20
    assert "options" not in route(frame, {**options, "job": None}).schema["partition"].metadata["spark_cas"]


def test_each_copy_counts_and_the_first_differences_are_the_first(spark, options):
    headers = sf.array(sf.struct(sf.lit("h").alias("key"), sf.lit(b"1").alias("value")))
    df = spark.createDataFrame([(key, "v") for key in ("a", "a", "b", "c", "d")], "key STRING, value STRING")
    df = df.withColumn("headers", headers)
    write(df, options)
    same = verify_log(df, options)
    assert (
        same.expected_digest == same.actual_digest == verify_log(df.orderBy(sf.desc("key")), options).expected_digest
    )

    thrice = verify_log(df.unionAll(df.where("key = 'a'").limit(1)), options)
    assert (thrice.missing, thrice.unexpected, thrice.actual_digest) == (1, 0, same.actual_digest)
    assert thrice.expected_digest != same.expected_digest
    (missing,) = thrice.differences
    assert (missing.kind, missing.key, missing.expected, missing.actual) == ("missing", b"a", 3, 2)
    assert None not in (missing.partition, missing.offset)
    once = verify_log(df.dropDuplicates(["key"]), options)
    assert (once.missing, once.unexpected, once.expected_digest != same.expected_digest) == (0, 1, True)
    assert found_in(df.withColumn("headers", sf.array(headers[0], headers[0])), options) == (5, 5, None)
    collated = "array<struct<key: string collate UTF8_LCASE, value: binary>>"
    assert found_in(df.withColumn("headers", headers.cast(collated)), options) == (0, 0, None)

    others = spark.createDataFrame([(key, "v") for key in "zyxw"], "key STRING, value STRING")
    found = verify_log(others, options, first=2)
    assert (found.missing, found.unexpected) == (4, 5)
    assert [each.key for each in found.differences if each.kind == "missing"] == [b"w", b"x"]
    with open_log(options["path"]) as log:
        lies = [(p, offset, row["key"]) for p in range(2) for offset, row in records_in(log, p)]
    listed = [(each.partition, each.offset, each.key) for each in found.differences if each.kind == "unexpected"]
    assert listed == list({key: (p, offset, key) for p, offset, key in reversed(lies)}.values())[::-1][:2]


def test_digest_shows_which_value_is_null(spark, options):
    df = spark.createDataFrame([(b"a", None)], "key BINARY, value BINARY")
    write(df.withColumn("headers", sf.expr("array(struct('h' AS key, binary('i') AS value))")), options)
    exchanged = df.select(sf.col("value").alias("key"), sf.col("key").alias("value"))
    found = verify_log(exchanged, options)
    assert (found.missing, found.unexpected, found.expected_digest != found.actual_digest) == (1, 1, True)
    names = sf.expr("array(struct('h' AS key, binary(NULL) AS value), struct('i' AS key, binary(NULL) AS value))")
    found = verify_log(df.withColumn("headers", names), options)
    assert (found.missing, found.unexpected, found.expected_digest != found.actual_digest) == (1, 1, True)


def test_order_is_that_of_each_key(spark, options):
    """Equal rows are interchangeable: a, b, a matches a at 1 and 3."""
    rows = [("k", "a", 1), ("k", "b", 2), ("k", "a", 3), ("j", "c", 1), ("j", "d", 2), (None, "n", 1), (None, "m", 2)]
    df = spark.createDataFrame(rows, "key STRING, value STRING, at INT")
    write(df, options, order_by=["at"])
    assert found_in(df, options, order_by=["at"]) == (0, 0, 0)
    assert found_in(df, options, order_by=[sf.col("at").desc()]) == (0, 0, 1)
    tied = df.withColumn("at", sf.lit(1))
    assert found_in(tied, options, order_by=["at"]) == (0, 0, 0)
    swapped = df.withColumn("at", sf.when(sf.col("value") == "b", 4).otherwise(sf.col("at")))
    found = verify_log(swapped, options, order_by=["at"])
    assert (found.missing, found.unexpected, found.out_of_order, found.holds) == (0, 0, 1, False)
    (only,) = found.differences
    assert (only.kind, only.key, only.value) == ("out of order", b"k", b"a")


@pytest.mark.kafka
def test_a_topic_in_which_markers_lie_between_the_rows(spark, broker):
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": clients.create_topic(broker.bootstrap, 2)}
    df = spark.createDataFrame([("k", "a", 1), ("k", "b", 2), ("j", "c", 1)], "key STRING, value STRING, at INT")
    write(df, options, order_by=["at"])
    clients.append(broker.bootstrap, options["topic"], "never", "seen", commit=False)
    assert found_in(df, options, order_by=["at"]) == (0, 0, 0)
    write(df.limit(1), options, order_by=["at"], job="once-more")
    assert found_in(df, options) == (0, 1, None)
    topic = options.pop("topic")
    assert found_in(df, {**options, "assign": json.dumps({topic: [1, 0]})}) == (0, 1, None)


def test_part_of_a_log(spark, path):
    df = spark.range(9).selectExpr("'k' AS key", "STRING(id) AS value", "INT(id % 2) AS partition")
    write(df, {"path": path}, by="partition")
    with open_log(path) as log:
        log_id = log.layout().log_id
    options = {"path": path, "assign": '{"flights": [1]}', "logId": log_id, "endingoffsets": "latest"}
    assert found_in(df.where("partition = 1"), options) == (0, 0, None)
    assert found_in(df, options) == (5, 0, None)
    with pytest.raises(OptionError, match="the topic has 2 partitions"):
        verify_log(df, {"path": path, "assign": '{"flights": [1, 2]}'})
    with pytest.raises(TruncatedError):
        verify_log(df, {"path": path, "logId": "another"})


@pytest.mark.full
def test_a_key_in_two_partitions_has_no_order_unless_the_frame_says_so(spark, path):
    # Read partition by partition, the rows of k are out of order, and those of l are not.
    rows = [("k", "a", 0, 1), ("k", "b", 1, 2), ("k", "c", 0, 3), ("l", "d", 0, 1), ("l", "e", 1, 2)]
    df = spark.createDataFrame(rows, "key STRING, value STRING, partition INT, at INT")
    write(df, {"path": path}, order_by=["at"], by="partition")
    assert found_in(df, path, order_by=["at"]) == (0, 0, 0)
    assert found_in(df.drop("partition"), path, order_by=["at"]) == (0, 0, 2)
    moved = df.withColumn("partition", 1 - sf.col("partition"))
    assert found_in(moved, path) == (5, 5, None)


def test_the_program_says_what_differs(spark, tmp_path, path, capsys):
    spark.range(50).selectExpr("concat('k', id % 3) AS name", "id").write.json(str(tmp_path / "rows.json"))
    df = spark.range(50).selectExpr("concat('k', id % 3) AS key", "cast(id AS string) AS value", "id AS at")
    write(df, {"path": path}, order_by=["at"])

    def run(*argv):
        rows = [
            "--input",
            str(tmp_path / "rows.json"),
            "--schema",
            "name STRING, id BIGINT",
            "--key",
            "name",
            "--value",
            "cast(id AS string)",
        ]
        code = main([*rows, "--order-by", "id", "--log", path, *argv], "verify_log.py", lambda _: spark)
        out, told = capsys.readouterr()
        return code, json.loads(out.splitlines()[-1]), told

    code, result, told = run()
    assert (code, result["status"], result["expected_digest"]) == (0, "same", result["actual_digest"])
    assert "exactly these 50 rows" in told
    with open_log(path) as log:
        append_foreign(log, 1, "foreign\n\x1b")
    code, result, told = run("--first", "3")
    assert (code, result["status"], result["unexpected"], result["exit_code"]) == (5, "different", 1, 5)
    assert [each["value"] for each in result["differences"]] == ["foreign\\n\\x1b"]
    assert "unexpected at offset" in told
    assert "(0 in the input, 1 in the log): key foreign\\n\\x1b, value foreign\\n\\x1b" in told
    code, result, _ = run("--log-option", "endingOffsets=earliest")
    assert (code, result["missing"]) == (5, 50)
    assert run("--key", "nobody")[0] == 2
    with pytest.raises(SystemExit, match="2"):
        run("--topic", "t")
    (chunk, *_) = sorted(Path(path).glob("partition=*/*.parquet"))
    chunk.write_bytes(b"")
    code, result, _ = run()
    assert (code, result["status"], result["error"]) == (6, "failed", "CHUNK_DAMAGED")
