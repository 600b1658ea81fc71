"""The input of a task that writes: its rows without end markers, and whether their end is known.

A batch that `route` returned has end markers. Streams and other frames have none. Then no task knows whether it has
read all of its rows, and the driver's commit completes the write: Spark calls it only after all tasks have succeeded.
"""

from collections.abc import Iterator

import pyarrow as pa

from spark_cas.spark.accelerators.input_stream import has_ended, until_cut_off
from spark_cas.spark.accelerators.quick_ack import acknowledged
from spark_cas.spark.schema import EndMarkers
from spark_cas.spark.writing.end_markers import (
    all_in_one_task,
    before_end_markers,
    changed_after_route,
    require_no_end_markers,
)


def task_rows(batches: Iterator[pa.RecordBatch], partitions: int, markers: EndMarkers) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, and raise an error after the last one if the input was cut off.

    Without end markers, it may be undetected (`has_end`): the rows may be only a part of those of the task.

    Raises:
        EOFError: The input was cut off.
        NotRoutedError: The frame was changed after `route`, or its rows are in several tasks.
    """
    match markers:
        case "none":
            yield from require_no_end_markers(until_cut_off(acknowledged(batches)))
        case "load":
            yield from all_in_one_task(acknowledged(batches), partitions)
        case "partition":
            try:
                yield from before_end_markers(acknowledged(batches), partitions)
            except EOFError:
                # Spark retries a task that raises. It need not if no batch is missing.
                if has_ended():
                    raise changed_after_route("a partition has no end marker") from None
                raise


def has_end(markers: EndMarkers) -> bool:
    """Return whether a task with these end markers knows that it has all of its rows."""
    return markers != "none"
