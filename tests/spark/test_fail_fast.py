"""A permanent error of one task stops the other tasks of the write, and reports the rows that this run appended."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_cas import error_from_text, open_log
from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import (
    ConditionalLogError,
    ConflictError,
    ExpectedOffsetError,
    InputChangedError,
    NotRoutedError,
    RecordTooLargeError,
)
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.log.load.append_rows import append_rows
from spark_cas.log.load.planning import pin_plan
from tests.long import full
from tests.spark.addresses import KAFKA
from tests.spark.session_settings import session_settings
from tests.support.faults import Fault, FaultyLog, InjectedFaultError, When, crash
from tests.support.writing import append_foreign, table_of, values_in

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

CHUNK = 5
VALUE_BYTES = 20_000
"""A chunk exceeds the buffers between Spark and its Python workers, so the writer receives each chunk immediately."""
SLOW_CHUNKS = 60
PAUSE_SECONDS = 0.25
"""The slow task takes at least 15 s, three times as long as it may append after the error of the other task."""


def rows_of(session):
    """Ten rows for partition 0 in one task, and many rows for partition 1 in another task."""
    slow = SLOW_CHUNKS * CHUNK
    # Spark 4.2 reads a union of two frames with one partition each in a single task.
    both = session.range(0, 2 * slow, 1, 2).where(f"id < 10 OR id >= {slow}")
    ids = both.selectExpr(f"IF(id < {slow}, id, id - {slow} + 10) AS id")
    rows = ids.selectExpr("IF(id < 10, 0, 1) AS partition", "CAST(id AS STRING) AS key")
    return rows.selectExpr("partition", "key", f"lpad(key, {VALUE_BYTES}, '0') AS value")


def in_two_tasks(rows, folder, before_fast):
    """Delay each batch of partition 1. Partition 0 starts after four of them, and calls `before_fast` first."""
    some = Path(folder, "some")

    def run(batches):
        for number, batch in enumerate(batches):
            if batch.column("partition")[0].as_py() == 1:
                time.sleep(PAUSE_SECONDS)
            elif number == 0:
                wait_until(some.exists)
                before_fast()
            yield batch
            if number == 3:
                some.touch()

    return rows.mapInArrow(run, rows.schema)


def wait_until(condition):
    deadline = time.monotonic() + 120
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)


def wait_for_rows(address, before=0):
    """Wait until the slow task has appended rows."""
    with open_log(address) as log:
        wait_until(lambda: len(values_in(log, 1)) > before)


def save(rows, address, **options):
    writer = rows.write.format("conditional-log").mode("append").options(maxRecordsPerChunk=CHUNK, routed="true")
    with session_settings(rows.sparkSession, {"spark.sql.execution.arrow.maxRecordsPerBatch": str(CHUNK)}):
        writer.options(**options).save(address)


def error_of(work):
    with pytest.raises(Exception) as raised:
        work()
    error = error_from_text(str(raised.value))
    assert error is not None, raised.value
    return error


def require_stopped(error, address, before=0):
    """Check that the slow task stopped early, and that the error counts only the rows of this run."""
    with open_log(address) as log:
        slow = len(values_in(log, 1)) - before
    assert 0 < slow < SLOW_CHUNKS * CHUNK, "the other task completed"
    assert error.appended_rows == {1: slow}, error
    assert slow % CHUNK == 0


def begin_with_other_rows(address):
    """Simulate a crashed run of the job: a chunk of different rows in partition 0, and a chunk in partition 1."""
    with open_log(address) as log:
        log.create(2)
        plan = pin_plan(log, "load", ExpectedOffsets("end"))
        dying = FaultyLog(log, Fault("append", 3, When.BEFORE, crash))
        keys = [str(10 + at) for at in range(CHUNK)]
        values = pa.array([key.rjust(VALUE_BYTES, "0").encode() for key in keys], pa.binary())
        same = table_of(keys).set_column(1, "value", values)
        batches = [(0, table_of("abcde")), (0, table_of("f")), (1, same), (1, table_of("g")), (1, table_of("h"))]
        rows = [(partition, batch) for partition, table in batches for batch in table.to_batches()]
        with pytest.raises(InjectedFaultError):
            append_rows(dying, plan, rows, task="before/0", limits=ChunkLimits(max_records=CHUNK))
        assert [len(values_in(log, each)) for each in range(2)] == [CHUNK, CHUNK]


@pytest.mark.parametrize("address", [KAFKA, *full("embedded")], indirect=True)
def test_changed_input_of_one_task_stops_the_other(spark, address, tmp_path):
    require_changed_input_stops_the_other(spark, address, tmp_path)


def require_changed_input_stops_the_other(session, address, tmp_path):
    begin_with_other_rows(address)
    rows = in_two_tasks(rows_of(session), tmp_path, partial(wait_for_rows, address, CHUNK))
    error = error_of(lambda: save(rows, address, job="load"))
    assert isinstance(error, InputChangedError), error
    require_stopped(error, address, before=CHUNK)
    require_resumable(rows_of(session), address, error)


def require_resumable(rows, address, error):
    """Check that the cancellation of one run does not stop the next run of the job."""
    slow = rows.where("partition = 1")
    again = error_of(lambda: save(slow, address, job="load"))
    assert isinstance(again, InputChangedError), again
    with open_log(address) as log:
        done = len(values_in(log, 1))
    assert done == SLOW_CHUNKS * CHUNK, "partition 1 is complete now"
    assert again.appended_rows == {1: done - CHUNK - error.appended_rows[1]}


def append_another_record(path):
    wait_for_rows(path)
    with open_log(path) as log:
        append_foreign(log, 0, "another writer's")


# The expected error, the options and the columns of the rows.
WRONG: dict[str, tuple[type[ConditionalLogError], dict[str, Any], list[str]]] = {
    "conflict": (ConflictError, {"expectedOffsets": "end"}, ["partition", "key", "value"]),
    "record too large": (
        RecordTooLargeError,
        {"maxBytesPerChunk": 10 * VALUE_BYTES},
        ["partition", "key", f"IF(partition = 0, repeat('x', {20 * VALUE_BYTES}), value) AS value"],
    ),
    "not routed": (NotRoutedError, {}, ["IF(partition = 0, -1, partition) AS partition", "key", "value"]),
    "claim": (
        ExpectedOffsetError,
        {"expectedOffsets": "none"},
        ["partition", "key", "value", "IF(partition = 0, -5L, NULL) AS expected_offset"],
    ),
}


@pytest.mark.parametrize("name", ["record too large", *full("conflict", "not routed", "claim")])
def test_each_definite_error_stops_the_other_task(spark, path, tmp_path, name):
    kind, options, columns = WRONG[name]
    with open_log(path) as log:
        log.create(2)
    before = partial(append_another_record if name == "conflict" else wait_for_rows, path)
    rows = in_two_tasks(rows_of(spark).selectExpr(*columns), tmp_path, before)
    error = error_of(lambda: save(rows, path, job="load", **options))
    assert isinstance(error, kind), error
    require_stopped(error, path)
    assert not list(Path(path, "_log", "cancelled").glob("*")), "the driver removes the cancellation"


@pytest.mark.full
def test_nothing_of_an_atomic_load_is_visible(spark, path, tmp_path):
    with open_log(path) as log:
        log.create(2)
    _, options, columns = WRONG["record too large"]
    rows = in_two_tasks(rows_of(spark).selectExpr(*columns), tmp_path, lambda: None)
    error = error_of(lambda: save(rows, path, job="load", atomic="load", **options))
    assert isinstance(error, RecordTooLargeError), error
    assert error.appended_rows == {}
    with open_log(path) as log:
        assert [len(values_in(log, each)) for each in range(2)] == [0, 0]
    chunks = list(Path(path, "partition=00001").glob("*"))
    assert len(chunks) < SLOW_CHUNKS, "the other task completed"


def test_a_write_without_a_job_stops_as_well(spark, path, tmp_path):
    with open_log(path) as log:
        log.create(2)
    _, options, columns = WRONG["record too large"]
    rows = in_two_tasks(rows_of(spark).selectExpr(*columns), tmp_path, partial(wait_for_rows, path))
    error = error_of(lambda: save(rows, path, idempotence="off", **options))
    assert isinstance(error, RecordTooLargeError), error
    with open_log(path) as log:
        assert len(values_in(log, 1)) < SLOW_CHUNKS * CHUNK, "the other task completed"


@pytest.mark.full
def test_on_connect_changed_input_of_one_task_stops_the_other(connect, address, tmp_path):
    """Keep this test last: during a Connect session, column functions belong to Connect."""
    require_changed_input_stops_the_other(connect, address, tmp_path)
