"""How a task detects the end of its input, with a stream of Spark's worker and without. No JVM."""

import os
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.serializers import SpecialLengths, write_int

from spark_cas.core.errors import SparkSetupError
from spark_cas.spark.writing.end_of_stream import whole_input
from spark_cas.spark.writing.sealed import _sealing

BATCHES = ["first", "second"]


@pytest.fixture
def in_task():
    TaskContext._setTaskContext(TaskContext())
    yield
    TaskContext._taskContext = None


def worker(under_any_name, seen):
    """Read the input of a task as the main function of a worker does, which has the stream in a local variable."""
    assert under_any_name.readable()
    seen.extend(whole_input(iter(BATCHES)))


def run(work, *arguments):
    """In a thread, whose stack holds no file of the tests."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work, *arguments).result(60)


def stream_of(*numbers):
    read, write = os.pipe()
    with os.fdopen(write, "wb") as out:
        for number in numbers:
            write_int(number, out)
    return os.fdopen(read, "rb")


def test_end_of_input_does_not_depend_on_variable_names(in_task):
    seen: list[str] = []
    with stream_of(SpecialLengths.END_OF_STREAM) as stream:
        run(worker, stream, seen)
    assert seen == BATCHES


@pytest.mark.parametrize("behind", [(), (SpecialLengths.END_OF_DATA_SECTION,)])
def test_an_input_that_was_cut_off_is_an_error(in_task, behind):
    seen: list[str] = []
    with stream_of(*behind) as stream, pytest.raises(EOFError):
        run(worker, stream, seen)
    assert seen == BATCHES


def seal(under_any_name, batches):
    assert under_any_name.readable()
    schema = pa.schema([("key", pa.string()), ("value", pa.binary()), ("partition", pa.int32())])
    rows = {"key": ["a"], "value": [b"1"], "partition": [0]}
    batches.extend(_sealing(schema)(iter([pa.RecordBatch.from_pydict(rows, schema=schema)])))


def test_end_marker_of_a_micro_batch_is_missing_if_the_input_was_cut_off(in_task):
    batches: list[pa.RecordBatch] = []
    with stream_of(SpecialLengths.END_OF_STREAM) as stream:
        run(seal, stream, batches)
    assert [each.column("partition").to_pylist() for each in batches] == [[0], [-2]]
    batches.clear()
    with stream_of() as stream, pytest.raises(EOFError):
        run(seal, stream, batches)
    assert [each.column("partition").to_pylist() for each in batches] == [[0]]


def test_a_worker_of_another_kind_is_refused_before_the_first_row(in_task):
    seen: list[str] = []
    with pytest.raises(SparkSetupError):
        run(lambda: seen.extend(whole_input(iter(BATCHES))))
    assert seen == []


def test_input_without_a_task_is_complete():
    assert list(whole_input(iter(BATCHES))) == BATCHES
