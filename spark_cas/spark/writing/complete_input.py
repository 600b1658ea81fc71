"""The complete input of a task that writes: all of its rows, or an error if the input was cut off.

A batch that `route` returned has end markers. Streams and other frames have none. For these, the end is searched in
the stream of Spark's worker.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from spark_cas.spark.writing.end_markers import before_end_markers
from spark_cas.spark.writing.end_of_stream import acknowledged, whole_input
from spark_cas.spark.writing.sealed import unsealed


def complete_rows(
    batches: Iterator[pa.RecordBatch], partitions: int, *, has_end_markers: bool, in_one_task: bool = False
) -> Iterable[pa.RecordBatch]:
    """Return the rows of a task, without end markers. At their end, raise an error if the input was cut off.

    Args:
        batches: The batches that Spark sends.
        partitions: The partition count of the log.
        has_end_markers: Whether the rows of each partition end with an end marker.
        in_one_task: Whether one task must have all rows of the write.

    Raises:
        EOFError: The input was cut off.
        NotRoutedError: The frame was changed after `route`, or its rows are in several tasks.
        SparkSetupError: There are no end markers, and the end of the input is not accessible.
    """
    if has_end_markers:
        return before_end_markers(acknowledged(batches), partitions, in_one_task=in_one_task)
    rows = whole_input(batches)
    return unsealed(rows) if in_one_task else rows
