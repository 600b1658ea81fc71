"""A write is cancelled while Spark sends its rows. The same write, started again, appends each row once."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from spark_cas import open_log, route
from spark_cas.core.errors import LogNotFoundError
from spark_cas.spark.writing.end_markers import end_markers_of
from tests.long import full
from tests.spark.session_settings import session_settings

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

BATCH = 100
FIRST = 10 * BATCH
ROWS = FIRST + BATCH
VALUE_BYTES = 2000
"""A batch is more than Spark's JVM holds back before it sends."""
ALL = [f"{at:0{VALUE_BYTES}}" for at in range(ROWS)]
WAIT_SECONDS = 60
HIDDEN = "tests.spark.hidden_stream"
WARNINGS = ["-W", "ignore::ResourceWarning", "-W", "ignore::pytest.PytestUnraisableExceptionWarning"]
"""Spark 4.0 does not close some of its sockets."""
WITHOUT_STREAM = "between_batches or micro_batch"
"""The tests that run with the hidden stream."""
LATE_SECONDS = 3
"""How long a worker may go on after its job was cancelled."""


@pytest.fixture(autouse=True)
def small_batches(spark):
    """Of so many rows each, as they pass between Spark and Python."""
    with session_settings(spark, {"spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH)}):
        yield


def numbered_rows(numbers):
    """Return a row of partition 0 for each number, in one task."""
    return numbers.selectExpr(
        "CAST(id AS STRING) AS key", f"lpad(id, {VALUE_BYTES}, '0') AS value", "0 AS partition"
    ).coalesce(1)


def slowly(frame, release: Path):
    """Return the rows of a frame, in its tasks. The last ones wait until a file exists."""

    def rows(batches):
        seen = 0
        for batch in batches:
            deadline = time.monotonic() + WAIT_SECONDS
            if seen == FIRST:
                release.with_name("waiting").touch()
            while seen == FIRST and not release.exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            seen += batch.num_rows
            yield batch

    schema = frame.schema
    return frame.mapInArrow(rows, schema).withMetadata("partition", schema["partition"].metadata)


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


def require_cancelled(spark, save, path: str, waiting: Path | None = None) -> None:
    """Cancel a load after its first rows are in the log, and require that the partition is not complete.

    With ``waiting``, cancel it only after this file exists, and the task that writes waits for more rows.
    """

    def cancel() -> bool:
        appended = until(lambda: progress_of(path))
        if waiting is not None:
            appended = until(waiting.exists) and appended
            time.sleep(LATE_SECONDS)
        spark.sparkContext.cancelAllJobs()
        return appended

    with ThreadPoolExecutor(1) as pool:
        cancelled = pool.submit(cancel)
        with pytest.raises((PySparkException, Py4JError), match="cancelled"):
            save()
        assert cancelled.result(WAIT_SECONDS), "the first rows are in the log"
    assert not until(lambda: progress_of(path).complete, LATE_SECONDS), "an incomplete input is not detected"


@pytest.mark.parametrize("has_markers", [False, *full(True)])
def test_load_that_is_cut_off_between_batches_is_incomplete_and_resumes(spark, path, tmp_path, has_markers):
    release = tmp_path / "release"
    options = {"path": path, "job": "load", "partitions": "1", "maxRecordsPerChunk": str(BATCH)}
    frame = numbered_rows(spark.range(0, ROWS, 1, 1))
    if has_markers:
        frame = slowly(route(frame, options, by="partition", order_by=["value"]), release)
        assert end_markers_of(frame) == 1
    else:
        frame, options["routed"] = slowly(frame, release), "true"

    def save() -> None:
        frame.write.format("conditional-log").mode("append").options(**options).save()

    require_cancelled(spark, save, path, release.with_name("waiting"))
    release.touch()
    save()
    assert rows_of(path) == ALL


@pytest.mark.full
def test_cancelled_load_of_routed_rows_is_not_complete_and_resumes(spark, path):
    rows = 20 * ROWS
    frame = spark.range(rows).selectExpr(
        "lpad(id, 6, '0') AS key", f"lpad(id, {VALUE_BYTES}, '0') AS value", "0 AS partition"
    )
    options = {"path": path, "job": "load", "partitions": "1", "maxRecordsPerChunk": str(BATCH)}

    def save() -> None:
        routed = route(frame, options, by="partition")
        routed.write.format("conditional-log").mode("append").options(**options).save()

    require_cancelled(spark, save, path)
    assert progress_of(path).rows < rows
    save()
    assert rows_of(path) == [f"{at:0{VALUE_BYTES}}" for at in range(rows)]


@pytest.mark.full
def test_cancelled_micro_batch_is_appended_once_when_the_query_is_started_again(spark, path, tmp_path):
    release, numbers = tmp_path / "release", str(tmp_path / "numbers")
    spark.range(0, ROWS, 1, 1).write.parquet(numbers)
    frame = slowly(numbered_rows(spark.readStream.schema("id BIGINT").parquet(numbers)), release)

    def start():
        options = {"job": "load", "routed": "true", "partitions": "1", "checkpointLocation": str(tmp_path / "state")}
        writer = frame.writeStream.format("conditional-log").options(**options)
        return writer.trigger(availableNow=True).start(path)

    query = start()
    assert until((tmp_path / "waiting").exists), "the first rows are in the first task"
    time.sleep(LATE_SECONDS)  # until they are in the task that writes
    spark.sparkContext.cancelAllJobs()
    with pytest.raises(PySparkException, match="cancelled"):
        query.awaitTermination(WAIT_SECONDS)
    until(lambda: progress_of(path), LATE_SECONDS)
    release.touch()
    assert start().awaitTermination(WAIT_SECONDS)
    assert rows_of(path) == ALL


@pytest.mark.skipif(HIDDEN in os.environ.get("PYSPARK_SUBMIT_ARGS", ""), reason="this test starts these tests")
def test_rows_are_appended_once_if_spark_hides_its_stream(tmp_path):
    """Run the tests above with workers in which spark_cas cannot detect by the stream that input was cut off."""
    # Spark kills the worker of a cancelled task after 2 s by default. Here it reads the end of its input first.
    conf = f"--conf spark.python.daemon.module={HIDDEN} --conf spark.python.task.killTimeout=60s"
    environment = os.environ | {"PYSPARK_SUBMIT_ARGS": f"{conf} pyspark-shell"}
    options = ["-p", "no:cacheprovider", f"--basetemp={tmp_path / 'tests'}", *WARNINGS]
    command = [sys.executable, "-m", "pytest", "-q", *options, "-k", WITHOUT_STREAM, __file__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
