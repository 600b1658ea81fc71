"""Errors on Spark Connect: own functions raise own types, and one setting removes the stack from Spark's errors."""

import warnings
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.connect.session import SparkSession

from spark_cas import bootstrap, error_from_text, open_log, route, verify_log
from spark_cas.core.errors import ChunkDamagedError, ConditionalLogError, ErrorKind, LogNotFoundError
from tests.spark.session_settings import session_settings

# A Connect session starts its own Python workers, which is slow on a busy machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

NO_STACK = {"spark.sql.connect.serverStacktrace.enabled": "false"}
"""The setting in docs/spark.md."""
MOST_LINES = 4
"""Spark adds lines before the error of a task, and a line with the SQLSTATE after each error."""
MOST_LINES_OF_A_STREAM = 20
"""Spark adds the offsets and the plan of the query."""


def rows_of(session):
    return session.sql("SELECT 'a' AS key, CAST(id AS STRING) AS value FROM range(3)")


def save(rows, path, **options):
    rows.write.format("conditional-log").mode("append").options(**options).save(path)


def read(session, path, **options):
    session.read.format("conditional-log").options(**options).load(path).collect()


def damage_oldest_chunk(path):
    """Damage a chunk that only a task reads: the plan reads only the newest one."""
    Path(path, "partition=00000", f"{0:020d}.parquet").write_bytes(b"no chunk")


def write_three_chunks(session, path):
    save(route(rows_of(session), path), path, job="load", maxRecordsPerChunk=1)


def read_damaged(session, path):
    write_three_chunks(session, path)
    damage_oldest_chunk(path)
    read(session, path)


ONE_ROW_IS_THERE = {"expectedOffsets": '{"0": 0}'}


def write_with_conflict(session, path):
    write_three_chunks(session, path)
    save(route(rows_of(session), path), path, **ONE_ROW_IS_THERE)


WRONG = {
    "conflict": (write_with_conflict, ErrorKind.CONFLICT),
    "option of a write": (lambda s, path: save(route(rows_of(s), path), path, jbo="x"), ErrorKind.OPTION),
    "option of a read": (lambda s, path: read(s, path, veiw="offsets"), ErrorKind.OPTION),
    "no log": (lambda s, path: read(s, path + "-missing"), ErrorKind.LOG_NOT_FOUND),
    "error of a task": (read_damaged, ErrorKind.CHUNK_DAMAGED),
}


@pytest.fixture
def log_path(path):
    with open_log(path) as log:
        log.create(1)
    return path


@pytest.fixture
def no_stack(connect):
    with session_settings(connect, NO_STACK):
        yield


@pytest.mark.usefixtures("connect")
def test_builder_passes_the_setting_and_skips_those_that_the_server_rejects(connect_port):
    """The notebooks use the builder, because some platforms reject the setting."""
    builder = SparkSession.builder.remote(f"sc://127.0.0.1:{connect_port}")
    with warnings.catch_warnings(action="ignore"):
        session = builder.config("spark.sql.warehouse.dir", "rejected").config(map={**NO_STACK}).create()
    try:
        assert {name: session.conf.get(name) for name in NO_STACK} == NO_STACK
        with pytest.raises(PySparkException):
            session.conf.set("spark.sql.warehouse.dir", "rejected")
    finally:
        session.stop()


@pytest.mark.usefixtures("no_stack")
@pytest.mark.parametrize("name", WRONG)
def test_error_of_spark_is_short_with_the_setting(connect, log_path, name):
    work, kind = WRONG[name]
    text = text_of(lambda: work(connect, log_path))
    require_error(text, kind)
    assert len(text.strip().splitlines()) <= MOST_LINES, text


@pytest.mark.usefixtures("no_stack")
def test_error_of_stream_has_no_stack_with_the_setting(connect, path, tmp_path):
    stream = connect.readStream.format("conditional-log").load(path + "-missing")
    text = text_of(lambda: run(stream.writeStream.format("noop"), tmp_path / "checkpoint"))
    require_error(text, ErrorKind.LOG_NOT_FOUND)
    assert len(text.splitlines()) <= MOST_LINES_OF_A_STREAM, text


def test_error_without_the_setting_is_parsed_and_has_the_stack(connect, log_path):
    text = text_of(lambda: read(connect, log_path + "-missing"))
    assert "JVM stacktrace" in text
    assert kind_in(text) == ErrorKind.LOG_NOT_FOUND


def test_error_in_foreach_batch_is_parsed(connect, log_path, tmp_path):
    write_three_chunks(connect, log_path)
    source = str(tmp_path / "source")
    rows_of(connect).write.parquet(source)

    def append(batch, number):
        options = {"job": f"load-{number}", **ONE_ROW_IS_THERE}
        routed = route(batch, {"path": log_path, **options})
        routed.write.format("conditional-log").mode("append").options(**options).save(log_path)

    writer = connect.readStream.schema("key STRING, value STRING").parquet(source).writeStream.foreachBatch(append)
    text = text_of(lambda: run(writer, tmp_path / "checkpoint"))
    assert kind_in(text) == ErrorKind.CONFLICT


OWN_FUNCTIONS = {
    "route": lambda session, path: route(rows_of(session), path),
    "bootstrap": bootstrap,
    "verify_log": lambda session, path: verify_log(rows_of(session), path),
}


@pytest.mark.parametrize("name", OWN_FUNCTIONS)
def test_own_function_raises_own_error(connect, path, name):
    error = error_of(lambda: OWN_FUNCTIONS[name](connect, path))
    assert type(error) is LogNotFoundError
    assert len(str(error).splitlines()) == 1


def test_verify_log_raises_own_error_of_a_task(connect, log_path):
    write_three_chunks(connect, log_path)
    damage_oldest_chunk(log_path)
    error = error_of(lambda: verify_log(rows_of(connect), log_path))
    assert type(error) is ChunkDamagedError
    assert len(str(error).splitlines()) == 1


def run(writer, checkpoint):
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


def error_of(work):
    with pytest.raises(Exception) as raised:
        work()
    return raised.value


def text_of(work):
    error = error_of(work)
    assert not isinstance(error, ConditionalLogError), "this is an error of Spark"
    return str(error)


def kind_in(text):
    error = error_from_text(text)
    return None if error is None else error.kind


def require_error(text, kind):
    assert kind_in(text) == kind
    assert "Traceback" not in text
    assert "JVM stacktrace" not in text
