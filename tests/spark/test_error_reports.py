"""Spark shows an error of the package as one message without a traceback."""

import re
from pathlib import Path

import pytest
from pyspark.sql import functions as sf

from spark_cas import route

pytestmark = pytest.mark.spark

MOST_LINES = 4
"""Spark adds a line before some messages, and appends `` SQLSTATE: 38000``."""


@pytest.fixture
def rows(spark):
    return spark.sql("SELECT 'a' AS key, 'b' AS value")


def save(frame, **options):
    frame.write.format("conditional-log").mode("append").options(**options).save()


def read(spark, **options):
    spark.read.format("conditional-log").options(**options).load().collect()


WRONG = {
    "option of a write": (lambda _, rows, path: save(route(rows, path), path=path, jbo="x"), "[OPTION]"),
    "not routed": (lambda _, rows, path: save(rows, path=path), "[NOT_ROUTED]"),
    "refused": (lambda _, rows, path: save(route(rows, path), path=path, expectedOffsets='{"0": 7}'), ""),
    "option of a read": (lambda spark, _, path: read(spark, path=path, veiw="offsets"), "[OPTION]"),
    "no log": (lambda spark, _, path: read(spark, path=path + "-not-there"), "[LOG_NOT_FOUND]"),
}


@pytest.mark.parametrize("name", WRONG)
def test_error_is_shown_as_its_message(spark, rows, log, path, name):
    wrong, kind = WRONG[name]
    require_sentence(error_of(lambda: wrong(spark, rows, path)), kind)


def test_so_does_one_of_a_task(spark, log, path):
    rows = spark.sql("SELECT 'a' AS key, CAST(id AS STRING) AS value FROM range(3)")
    save(route(rows, path), path=path, job="load-1", maxRecordsPerChunk=1)
    # The plan reads only the newest chunk, the task reads every chunk.
    (oldest,) = Path(path).glob("partition=*/*0000.parquet")
    oldest.write_bytes(b"no chunk")
    require_sentence(error_of(spark.read.format("conditional-log").load(path).collect), "[CHUNK_DAMAGED]")


def test_so_does_one_of_a_stream(spark, path, tmp_path):
    stream = spark.readStream.format("conditional-log").load(path + "-not-there")
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    told = error_of(query.awaitTermination)
    assert "[LOG_NOT_FOUND]" in told
    assert "Traceback" not in told


def test_foreign_error_keeps_its_traceback(rows, log, path):
    divide = sf.udf(lambda _: 1 / 0, "string")
    told = error_of(lambda: save(route(rows.withColumn("value", divide("key")), path), path=path, job="load-1"))
    assert "Traceback" in told
    assert "ZeroDivisionError" in told


def error_of(work):
    with pytest.raises(Exception) as raised:
        work()
    return str(raised.value)


def require_sentence(told, kind):
    assert "Traceback" not in told
    assert len(told.splitlines()) <= MOST_LINES, told
    sentences = [line for line in told.splitlines() if re.search(r"\[[A-Z_]+\] [^\[]", line)]
    assert kind in sentences[-1]
