"""How a task detects early that its input was cut off, by a stream of Spark's worker. No JVM."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark import TaskContext
from pyspark.serializers import SpecialLengths, write_int

from spark_cas.spark.accelerators.input_stream import until_cut_off

BATCHES = ["first", "second"]


@pytest.fixture
def in_task():
    TaskContext._setTaskContext(TaskContext())
    yield
    TaskContext._taskContext = None


def worker(under_any_name, seen):
    """Read the input of a task as the main function of a worker does, which has the stream in a local variable."""
    assert under_any_name.readable()
    seen.extend(until_cut_off(iter(BATCHES)))


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


def test_worker_without_a_stream_detects_nothing(in_task):
    seen: list[str] = []
    run(lambda: seen.extend(until_cut_off(iter(BATCHES))))
    assert seen == BATCHES


def test_input_without_a_task_is_complete():
    assert list(until_cut_off(iter(BATCHES))) == BATCHES
