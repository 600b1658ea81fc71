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


def task_rows(
    batches: Iterator[pa.RecordBatch], partitions: int, markers: EndMarkers, *, needs_end: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, and raise an error after the last one if the input was cut off.

    Without end markers of Spark's JVM, this function searches for the end in the stream of Spark's worker. If that
    stream is not accessible (`has_end`), the rows may be only a part of those of the task.

    Args:
        batches: The batches that Spark sends.
        partitions: The partition count of the log.
        markers: The end markers of the frame.
        needs_end: Whether a part of the rows is of no use.

    Raises:
        EOFError: The input was cut off.
        NotRoutedError: The frame was changed after `route`, or its rows are in several tasks.
        SparkSetupError: The end of the input is needed and not accessible. It is raised before the first row.
    """
    match markers:
        case "none":
            yield from require_no_end_markers((whole_input if needs_end else until_cut_off)(batches))
        case "load":
            yield from all_in_one_task(acknowledged(batches), partitions)
        case "batch":
            # A Python stage makes the marker, and can be cut off too.
            yield from all_in_one_task(whole_input(batches), 1)
        case "partition":
            try:
                yield from before_end_markers(acknowledged(batches), partitions)
            except EOFError:
                # Spark retries a task that raises. It need not if the worker's stream shows that no batch is missing.
                if has_ended():
                    raise changed_after_route("a partition has no end marker") from None
                raise


def has_end(markers: EndMarkers) -> bool:
    """Return whether `task_rows` detects in this task that its input was cut off."""
    return markers != "none" or shows_end()
