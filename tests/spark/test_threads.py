"""Threads other than Python's main thread: Spark gives each a JVM thread without an active session."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import InheritableThread
from pyspark.sql import functions as sf

from jobs import stream_copy
from spark_cas import append_if_unchanged, bootstrap, open_log, route, verify_log

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ROWS = 20
THREADS = 3


def in_threads(kind, work):
    """Run ``work`` for each number in concurrent threads. Return the results, or raise an error of a thread."""
    results: dict[int, object] = {}
    ready = threading.Barrier(THREADS)

    def run(number):
        ready.wait(60)
        try:
            results[number] = work(number)
        except Exception as error:  # noqa: BLE001 - the test's thread raises it
            results[number] = error

    threads = [kind(target=run, args=(number,)) for number in range(THREADS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(240)
    for each in results.values():
        if isinstance(each, Exception):
            raise each
    return [results[number] for number in range(THREADS)]


def in_new_thread(work):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result(240)


def numbers(spark, log):
    return spark.range(ROWS).select(
        sf.concat(sf.lit(f"{log}-"), sf.col("id")).alias("key"), sf.col("id").cast("string").alias("value")
    )


@pytest.mark.parametrize("kind", [threading.Thread, InheritableThread])
def test_threads_write_bootstrap_and_read_at_the_same_time(spark, path, kind):
    def work(number):
        log = f"{path}-{number}"
        options: dict[str, str | float] = {"path": log, "partitions": 2, "job": "load"}
        df = numbers(spark, number)
        routed = route(df, options)
        routed.write.format("conditional-log").mode("append").options(job="load", partitions="2").save(log)
        found = bootstrap(spark, log)
        read = spark.read.format("conditional-log").load(log)
        return found.state.count(), read.count(), verify_log(df, log).holds

    assert in_threads(kind, work) == [(ROWS, ROWS, True)] * THREADS


@pytest.mark.parametrize("first", ["bootstrap", "verify_log", "append_if_unchanged", "stream_copy"])
def test_each_function_works_first_in_a_new_thread(spark, path, tmp_path, first, capsys):
    with open_log(path) as log:
        log.create(2)
    rows = numbers(spark, 0).withColumn("expected_offset", sf.lit(0).cast("bigint"))
    copy = ["--from", path, "--to", f"{path}-copy", "--checkpoint", str(tmp_path / "state"), "--job", "copy"]

    def call():
        match first:
            case "bootstrap":
                return bootstrap(spark, path).records.count()
            case "verify_log":
                return verify_log(numbers(spark, 0).limit(0), path).actual_rows
            case "append_if_unchanged":
                return append_if_unchanged(rows, path).rejected.count()
        return stream_copy.main([*copy, "--partitions", "2"], "stream_copy", lambda _: spark)

    assert in_new_thread(call) == 0, capsys.readouterr()


def test_a_thread_without_route_needs_the_line_that_the_docs_give(spark, log, path):
    placed = numbers(spark, 0).selectExpr("key", "value", "0 AS partition").coalesce(1)

    def write():
        placed.write.format("conditional-log").mode("append").option("routed", "true").save(path)

    def write_after_the_line():
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)
        write()

    def read():
        return spark.read.format("conditional-log").load(path).count()

    with pytest.raises(Py4JJavaError, match="DATA_SOURCE_NOT_FOUND"):
        in_new_thread(write)
    in_new_thread(write_after_the_line)
    assert in_new_thread(read) == ROWS
