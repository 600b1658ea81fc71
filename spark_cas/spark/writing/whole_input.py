"""The input of a task that writes, told apart from one that was cut off."""

import sys
from collections.abc import Iterator
from io import BufferedReader, BufferedRWPair
from types import FrameType

import pyarrow as pa
from pyspark import TaskContext
from pyspark.serializers import SpecialLengths

_END = SpecialLengths.END_OF_STREAM.to_bytes(4, "big", signed=True)


def whole_input(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches that Spark sends to a task; EOFError where they end although more were to come.

    When an attempt is killed, by a cancelled job or the end of its executor, its input just ends. Between two batches
    Arrow takes that for the end of the stream, and so the rows so far would pass for all of them. Spark's worker
    finds out only after `write` has returned, for then the number that stands behind the last batch is missing. It
    is looked for here, where nothing was made of the end yet.
    """
    yield from batches
    if TaskContext.get() is None:
        return
    # It comes in one piece, and of a stream that was cut off nothing comes any more.
    behind = _stream_from_jvm().peek(len(_END))[: len(_END)]
    if not behind or not _END.startswith(behind):
        raise EOFError(
            "Spark ended this attempt of the task before all of its rows had come. Chunks that were appended stay: "
            "the same job, run again, goes on behind them, and a write that is not exactly once appends them again."
        )


def _stream_from_jvm() -> BufferedReader | BufferedRWPair:
    """The stream that this task's worker reads: a variable of its main function, which Spark shows nobody."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - there is no other way
    while frame is not None:
        stream = frame.f_locals.get("infile")
        if frame.f_code.co_name == "main" and isinstance(stream, BufferedReader | BufferedRWPair):
            return stream
        frame = frame.f_back
    msg = "this version of pyspark runs its workers in a way that spark_cas does not know: use pyspark 4.2"
    raise RuntimeError(msg)
