"""The input of a task that writes: its rows without end markers, and whether their end is known.

A batch that `route` returned has end markers. Streams and other frames have none.
"""

from collections.abc import Iterator

import pyarrow as pa

from spark_cas.spark.schema import EndMarkers
from spark_cas.spark.writing.end_markers import (
    all_in_one_task,
    before_end_markers,
    changed_after_route,
    require_no_end_markers,
)
from spark_cas.spark.writing.end_of_stream import acknowledged, has_ended, shows_end, until_cut_off, whole_input


def rows_with_end(
    batches: Iterator[pa.RecordBatch], partitions: int, markers: EndMarkers
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, and raise an error after the last one if the input was cut off.

    Without end markers of Spark's JVM, this function searches for the end in the stream of Spark's worker.

    Args:
        batches: The batches that Spark sends.
        partitions: The partition count of the log.
        markers: The end markers of the frame.

    Raises:
        EOFError: The input was cut off.
        NotRoutedError: The frame was changed after `route`, or its rows are in several tasks.
        SparkSetupError: There are no such end markers, and the end of the input is not accessible.
    """
    if markers == "none":
        yield from require_no_end_markers(whole_input(batches))
    elif markers == "load":
        yield from all_in_one_task(acknowledged(batches), partitions)
    elif markers == "batch":
        # The marker comes from a Python stage.
        yield from all_in_one_task(whole_input(batches), 1)
    else:
        try:
            yield from before_end_markers(acknowledged(batches), partitions)
        except EOFError:
            # Spark retries a task that raises. If the worker's stream shows that no batch is missing, it need not.
            if has_ended():
                raise changed_after_route("a partition has no end marker") from None
            raise


def rows_so_far(batches: Iterator[pa.RecordBatch], partitions: int, markers: EndMarkers) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task. If `has_end` is false, they may be only a part of the rows of the task."""
    if markers == "none":
        return require_no_end_markers(until_cut_off(batches))
    return rows_with_end(batches, partitions, markers)


def has_end(markers: EndMarkers) -> bool:
    """Return whether `rows_so_far` detects in this task that its input was cut off."""
    return markers != "none" or shows_end()
