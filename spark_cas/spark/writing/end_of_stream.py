"""The end of the input in the stream of Spark's worker: detect input without end markers that was cut off.

Spark has no API for this. If it kills an attempt, because a job was cancelled or an executor ended, the input of the
task just ends. Between two batches, Arrow takes that for the end of the stream. After the last batch, Spark sends a
number that marks the end. Spark's worker detects that it is missing only after `write` has returned.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.serializers import SpecialLengths

from spark_cas.core.errors import SparkSetupError
from spark_cas.spark.accelerators.quick_ack import acknowledge
from spark_cas.spark.input_stream import Stream, stream_from_jvm
from spark_cas.spark.versions import PYSPARK

_END = SpecialLengths.END_OF_STREAM.to_bytes(4, "big", signed=True)


def acknowledged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches that Spark sends. `acknowledge` avoids a delay of 40 ms before the first one."""
    acknowledge(_stream_of_task())
    yield from batches


def until_cut_off(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches that Spark sends to a task. Raise EOFError if the stream shows that they were cut off.

    If the stream is not accessible, this detects nothing. So the caller must not rely on it.
    """
    stream = _stream_of_task()
    acknowledge(stream)
    yield from batches
    if stream is not None and not _is_at_end(stream):
        raise EOFError(
            "Spark ended this attempt of the task before its last row. Visible rows stay. Run the same job again: it "
            "resumes after them. A write that is not exactly-once appends them again."
        )


def whole_input(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches that Spark sends to a task, and raise EOFError if they were cut off.

    Raises SparkSetupError before the first batch if the stream that shows it is not accessible.
    """
    if not shows_end():
        raise SparkSetupError(
            f"the Python worker of this Spark ({PYSPARK}) does not show whether a task has all "
            f"of its rows. With option atomic, a stream, or a batch that was not routed, needs this. The task "
            f"appended nothing. Use spark_cas.route with the options of the write; in a stream, within foreachBatch."
        )
    yield from until_cut_off(batches)


def shows_end() -> bool:
    """Return whether `until_cut_off` detects in this task that its input was cut off."""
    return TaskContext.get() is None or stream_from_jvm() is not None


def has_ended() -> bool:
    """Return whether Spark has sent all batches to this task, and its stream shows this."""
    stream = _stream_of_task()
    return stream is not None and _is_at_end(stream)


def _stream_of_task() -> Stream | None:
    return None if TaskContext.get() is None else stream_from_jvm()


def _is_at_end(stream: Stream) -> bool:
    # The number arrives in one piece. A stream that was cut off has no more bytes.
    result = stream.peek(len(_END))[: len(_END)]
    return bool(result) and _END.startswith(result)
