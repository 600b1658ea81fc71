"""The stream on which Spark's JVM sends input to the task of this process. Correctness does not depend on it.

Spark has no API for this stream. `quick_ack` uses it. It also shows early that the input was cut off. Between two
batches, Arrow takes that for the end of the stream. After the last batch, Spark sends a number that marks the end.
"""

import sys
from collections.abc import Iterator
from io import BufferedReader, BufferedRWPair
from types import FrameType

import pyarrow as pa
from pyspark import TaskContext
from pyspark.serializers import SpecialLengths

Stream = BufferedReader | BufferedRWPair

_END = SpecialLengths.END_OF_STREAM.to_bytes(4, "big", signed=True)


def stream_from_jvm() -> Stream | None:
    """Return the stream on which the JVM sends data to this process, or None if there is none.

    It is a local variable of the functions that run a worker, so this searches the calling frames for a value of its
    type. In pyspark 4.0 to 4.3, the frames up to the worker's main function have no other value of this type.
    """
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - there is no other way
    while frame is not None:
        for result in frame.f_locals.values():
            if isinstance(result, Stream):
                return result
        frame = frame.f_back
    return None


def until_cut_off(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches that Spark sends to a task. Raise EOFError if the stream shows that they were cut off.

    Without a stream, this detects nothing, so the caller must not rely on it. With one, the task does not append a
    part of its last rows, which the next attempt would have to read from the log.
    """
    yield from batches
    stream = _stream_of_task()
    if stream is not None and not _is_at_end(stream):
        raise EOFError(
            "Spark ended this attempt of the task before its last row. Visible rows stay. Run the same job again: it "
            "resumes after them. A write that is not exactly-once appends them again."
        )


def has_ended() -> bool:
    """Return whether the stream shows that Spark has sent all batches to this task."""
    stream = _stream_of_task()
    return stream is not None and _is_at_end(stream)


def _stream_of_task() -> Stream | None:
    return None if TaskContext.get() is None else stream_from_jvm()


def _is_at_end(stream: Stream) -> bool:
    # The number arrives in one piece. A stream that was cut off has no more bytes.
    result = stream.peek(len(_END))[: len(_END)]
    return bool(result) and _END.startswith(result)
