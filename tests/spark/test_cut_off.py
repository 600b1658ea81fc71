"""A write that is cancelled while its rows still come: what came so far does not pass for all of them."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from spark_cas import open_log
from spark_cas.core.errors import LogNotFoundError

pytestmark = pytest.mark.spark

BATCH = 100
FIRST = 10 * BATCH
ROWS = FIRST + BATCH
VALUE_BYTES = 2000
"""A batch is more than Spark's JVM holds back before it sends."""
WAIT_SECONDS = 60
LATE_SECONDS = 3
"""How long a worker may go on after its job was cancelled."""


def slow_rows(spark, release: Path):
    """Rows of partition 0, the last of which come only once a file is there."""

    def rows(batches):
        seen = 0
        for batch in batches:
            deadline = time.monotonic() + WAIT_SECONDS
            while seen == FIRST and not release.exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            seen += batch.num_rows
            yield batch

    numbers = spark.range(0, ROWS, 1, 1).selectExpr(
        "CAST(id AS STRING) AS key", f"lpad(id, {VALUE_BYTES}, '0') AS value", "0 AS partition"
    )
    return numbers.coalesce(1).mapInArrow(rows, numbers.schema)


def rows_of(path: str) -> list[str]:
    with open_log(path) as log:
        return [
            value.decode()
            for _, records in log.read(0, log.bounds(0).range, ("value",))
            for value in records.column("value").to_pylist()
        ]


def progress_of(path: str):
    try:
        with open_log(path) as log:
            return log.progress(0, "load")
    except LogNotFoundError:
        return None


def until(look, seconds: float = WAIT_SECONDS) -> bool:
    deadline = time.monotonic() + seconds
    while not look() and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(look())


def test_a_cancelled_load_is_not_complete_and_goes_on_when_it_is_run_again(spark, path, tmp_path):
    release = tmp_path / "release"
    frame = slow_rows(spark, release)
    batch_rows = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(batch_rows)
    spark.conf.set(batch_rows, str(BATCH))

    def save() -> None:
        options = {"job": "load", "routed": "true", "partitions": "1", "maxRecordsPerChunk": str(BATCH)}
        frame.write.format("conditional-log").mode("append").options(**options).save(path)

    def cancel() -> bool:
        appended = until(lambda: progress_of(path))
        spark.sparkContext.cancelAllJobs()
        return appended

    try:
        with ThreadPoolExecutor(1) as pool:
            cancelled = pool.submit(cancel)
            with pytest.raises((PySparkException, Py4JError), match="cancelled"):
                save()
            assert cancelled.result(WAIT_SECONDS), "the first rows are in the log"
        assert not until(lambda: progress_of(path).complete, LATE_SECONDS), "what came so far passes for all"
        release.touch()
        save()
    finally:
        spark.conf.set(batch_rows, before)
    assert rows_of(path) == [f"{at:0{VALUE_BYTES}}" for at in range(ROWS)]
