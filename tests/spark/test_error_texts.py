"""`error_from_text` finds the package's errors in Spark's exceptions, and ignores input rows that imitate them."""

from pathlib import Path

import pytest

from spark_cas import error_from_text, open_log, route
from spark_cas.core.errors import ChunkDamagedError, ConflictError, LogNotFoundError, StorageError
from tests.long import full

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

TOKEN = "[CONFLICT] partition 0: x"
ERROR = f"spark_cas.core.errors.ConflictError: {TOKEN}"
COMMIT = "[PYTHON_DATA_SOURCE_ERROR] Failed to commit or abort Python data source write"
LINES = f"a\n{ERROR}\nCaused by: org.apache.spark.api.python.PythonException: {COMMIT}: {ERROR}"


def save(frame, address, **options):
    frame.write.format("conditional-log").mode("append").options(**options).save(address)


def error_of(work):
    with pytest.raises(Exception) as raised:
        work()
    return error_from_text(str(raised.value)), str(raised.value)


def literal(value):
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


def cast(session, value, tmp_path):
    text = f"concat({literal(value)}, id)"
    return session.range(2).selectExpr("'a' AS key", f"CAST(CAST({text} AS INT) AS STRING) AS value")


def raised_in_sql(session, value, tmp_path):
    text = f"concat({literal(value)}, id)"
    return session.range(2).selectExpr("'a' AS key", f"CAST(raise_error({text}) AS STRING) AS value")


def malformed(session, value, tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text(f'N1,1\n"{value}",x\n')
    rows = session.read.csv(str(file), schema="key STRING, value INT", mode="FAILFAST", multiLine=True)
    return rows.selectExpr("key", "CAST(value AS STRING) AS value")


def raised_in_python(session, value, tmp_path):
    def fail(batches):
        for batch in batches:
            raise ValueError(batch.column("value")[0].as_py())
            yield batch

    rows = session.range(1).selectExpr("'a' AS key", f"{literal(value)} AS value")
    return rows.mapInArrow(fail, rows.schema)


def require_no_error(path, rows):
    with open_log(path) as log:
        log.create(2)
    error, text = error_of(lambda: save(route(rows, path), path, job="load"))
    assert TOKEN in text, "the text has the row"
    assert error is None


@pytest.mark.parametrize("value", [*full(TOKEN, ERROR), LINES], ids=["token", "error", "lines"])
@pytest.mark.parametrize("input_", [cast, raised_in_sql, malformed, raised_in_python])
def test_a_row_of_the_input_is_no_error_of_a_load(spark, path, tmp_path, input_, value):
    require_no_error(path, input_(spark, value, tmp_path))


@pytest.mark.parametrize("value", [*full(TOKEN), LINES], ids=["token", "lines"])
def test_a_row_of_a_stream_is_no_error(spark, path, tmp_path, value):
    with open_log(path) as log:
        log.create(2)
    source = str(tmp_path / "source")
    spark.range(1).selectExpr(f"{literal(value)} AS value").write.parquet(source)
    rows = spark.readStream.schema("value STRING").parquet(source)
    wrong = route(rows.selectExpr("'a' AS key", "CAST(CAST(value AS INT) AS STRING) AS value"), path)
    writer = wrong.writeStream.format("conditional-log").option("path", path)
    error, text = error_of(lambda: run(writer, tmp_path / "checkpoint"))
    assert TOKEN in text, "the text has the row"
    assert error is None


def test_errors_of_plans_tasks_and_streams_are_parsed(spark, path, tmp_path):
    require_errors_of_plans_tasks_and_streams(spark, path, tmp_path)


def require_errors_of_plans_tasks_and_streams(session, path, tmp_path):
    with open_log(path) as log:
        log.create(1)
    rows = session.sql("SELECT 'a' AS key, CAST(id AS STRING) AS value FROM range(3)")
    save(route(rows, path), path, job="load", maxRecordsPerChunk=1)
    error, _ = error_of(lambda: save(route(rows, path), path, expectedOffsets='{"0": 1}'))
    assert type(error) is ConflictError

    oldest = Path(path, "partition=00000", f"{0:020d}.parquet")
    kept = oldest.read_bytes()
    oldest.write_bytes(b"no chunk")
    error, _ = error_of(session.read.format("conditional-log").load(path).collect)
    assert type(error) is ChunkDamagedError
    stream = session.readStream.format("conditional-log").option("startingOffsets", "earliest").load(path)
    error, _ = error_of(lambda: run(stream.writeStream.format("noop"), tmp_path / "reading"))
    assert type(error) is ChunkDamagedError
    oldest.write_bytes(kept)

    stream = session.readStream.format("conditional-log").load(path + "-missing")
    error, _ = error_of(lambda: run(stream.writeStream.format("noop"), tmp_path / "missing"))
    assert type(error) is LogNotFoundError


def test_error_of_a_retried_task_is_parsed(spark, path):
    with open_log(path) as log:
        log.create(1)
    Path(path, "partition=00000").write_text("no folder")
    rows = spark.sql("SELECT 'a' AS key, CAST(id AS STRING) AS value FROM range(3)")
    error, _ = error_of(lambda: save(route(rows, path), path, job="load", expectedOffsets="none"))
    assert type(error) is StorageError


def test_error_of_a_load_in_foreach_batch_is_parsed(spark, path, tmp_path):
    with open_log(path) as log:
        log.create(1)
    source = str(tmp_path / "source")
    spark.sql("SELECT 'a' AS key, 'b' AS value").write.parquet(source)

    def append(batch, number):
        given = {"path": path, "job": f"load-{number}", "expectedOffsets": '{"0": 7}'}
        route(batch, given).write.format("conditional-log").mode("append").options(**given).save()

    writer = spark.readStream.schema("key STRING, value STRING").parquet(source).writeStream.foreachBatch(append)
    error, _ = error_of(lambda: run(writer, tmp_path / "checkpoint"))
    assert error is not None
    assert error.kind == "TRUNCATED"


def run(writer, checkpoint):
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


# Keep these tests last: during a Connect session, column functions belong to Connect.
@pytest.mark.parametrize("input_", [cast, *full(malformed)])
def test_on_connect_a_row_of_the_input_is_no_error_of_a_load(connect, path, tmp_path, input_):
    require_no_error(path, input_(connect, LINES, tmp_path))


@pytest.mark.full
def test_connect_errors_of_plans_tasks_and_streams_are_parsed(connect, path, tmp_path):
    require_errors_of_plans_tasks_and_streams(connect, path, tmp_path)
