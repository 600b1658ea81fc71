"""End markers: one row after the rows of each partition, which proves that a task has read all of them.

If Spark kills an attempt of a task, because a job was cancelled or an executor ended, the input of the task just
ends. Between two batches this looks like the end of the rows. So `route` adds one row per partition, and Spark's JVM
sorts it after all other rows of the partition. A task completes a partition only after it has read this row.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as sf

from spark_cas.core.errors import NotRoutedError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ROUTE = "Use spark_cas.route(df, options) with the options of the write, and do not change its result."


def with_end_markers(df: "DataFrame", partitions: int) -> "DataFrame":
    """Return the rows of a frame and an end marker for each partition.

    In the marker of partition p, the column ``partition`` is ``p - partitions``, and all other columns are null.
    Modulo ``partitions`` this is p, so the marker gets into the task of its partition.
    """
    number = (sf.col("id") - partitions).cast("int")
    columns = (
        (number if field.name == "partition" else sf.lit(None).cast(field.dataType)).alias(field.name)
        for field in df.schema
    )
    return df.union(df.sparkSession.range(0, partitions, 1, 1).select(*columns))


def is_end_marker() -> "Column":
    """Return whether a row is an end marker."""
    return sf.col("partition") < 0


def before_end_markers(
    batches: Iterable[pa.RecordBatch], partitions: int, *, in_one_task: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task without the end markers.

    Args:
        batches: The input of the task: the rows of each of its partitions, followed by its end marker.
        partitions: The partition count of the log.
        in_one_task: Whether one task must have the rows of all partitions.

    Raises:
        EOFError: The input ended before the end marker of a partition.
        NotRoutedError: A partition has rows after its end marker, or two end markers. With ``in_one_task``, an end
            marker is missing.
    """
    begun: set[int] = set()
    ended: set[int] = set()
    for batch in batches:
        start = 0
        for at in [*_markers_in(batch), batch.num_rows]:
            rows = batch.slice(start, at - start)
            if rows.num_rows:
                numbers = set(pc.unique(rows.column("partition").drop_null()).to_pylist())
                _refuse_moved(numbers & ended)
                begun |= numbers
                yield rows
            if at < batch.num_rows:
                partition = batch.column("partition")[at].as_py() + partitions
                _refuse_moved({partition} & ended)
                ended.add(partition)
            start = at + 1
    if in_one_task:
        if (begun or ended) and len(ended) < partitions:
            raise NotRoutedError(
                f"a load with atomic=load on Kafka needs all rows in one task, and this task has only some of them. "
                f"Nothing was appended. {_ROUTE}"
            )
    elif begun - ended:
        raise EOFError(
            f"the input of this task ended without the end marker of partition {min(begun - ended)}. Either Spark "
            f"ended this attempt of the task, or the DataFrame was changed after spark_cas.route. The visible rows "
            f"are a prefix. Run the same job again: it resumes after them."
        )


def _markers_in(batch: pa.RecordBatch) -> list[int]:
    """Return the positions of the end markers in a batch. A row with a negative partition is none if it has data."""
    ids = batch.column("partition")
    if (pc.min(ids).as_py() or 0) >= 0:
        return []
    others = [column for name, column in zip(batch.schema.names, batch.columns, strict=True) if name != "partition"]
    negative = np.flatnonzero(ids.fill_null(0).to_numpy() < 0).tolist()
    return [at for at in negative if not any(column[at].is_valid for column in others)]


def _refuse_moved(partitions: set[int]) -> None:
    if partitions:
        raise NotRoutedError(
            f"partition {min(partitions)} has rows after its end marker: the DataFrame was changed after "
            f"spark_cas.route. {_ROUTE} Then run the same job again."
        )
