"""The complete input of a task that writes: detect input that was cut off."""

from collections.abc import Iterator

import pyarrow as pa
import pyspark
from pyspark import TaskContext
from pyspark.serializers import SpecialLengths

from spark_cas.core.errors import SparkSetupError
from spark_cas.spark.input_stream import Stream, acknowledge, stream_from_jvm

_END = SpecialLengths.END_OF_STREAM.to_bytes(4, "big", signed=True)


def whole_input(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches that Spark sends to a task, and raise EOFError if they were cut off.

    If Spark kills an attempt, because a job was cancelled or an executor ended, its input just ends. Between two
    batches, Arrow takes that for the end of the stream, so the rows so far would pass for all rows. After the last
    batch, Spark sends a number that marks the end. Spark's worker detects that it is missing only after `write` has
    returned. This function detects it before the task uses the end of the rows.

    Raises SparkSetupError before the first batch if the stream with that number is not accessible.
    """
    stream = None if TaskContext.get() is None else _required_stream()
    acknowledge(stream)
    yield from batches
    if stream is None:
        return
    # The number arrives in one piece. A stream that was cut off has no more bytes.
    behind = stream.peek(len(_END))[: len(_END)]
    if not behind or not _END.startswith(behind):
        raise EOFError(
            "Spark ended this attempt of the task before all of its rows had come. Chunks that are visible stay: "
            "the same job, run again, goes on behind them, and a write that is not exactly once appends them again."
        )


def _required_stream() -> Stream:
    stream = stream_from_jvm()
    if stream is None:
        raise SparkSetupError(
            f"this Spark (pyspark {pyspark.__version__}) hands rows to its Python workers in a way that spark_cas "
            f"does not know: it cannot tell all rows of a task from those of one that was cut off. The task appended "
            f"nothing. Write with pyspark 4.0 to 4.3. Reads work."
        )
    return stream
