"""End markers: one row after the rows of each partition, which proves that a task has read all of them.

If Spark kills an attempt of a task, because a job was cancelled or an executor ended, the input of the task just
ends. Between two batches this is like the end of the rows. So `route` adds one row per partition, and Spark's JVM
sorts it after all other rows of the partition. A task completes a partition only after it has read this row.

An end marker has no key, the value `MARKER`, and a negative ``partition``. All other columns are null.

Streams, and frames that `route` did not return, have none. Then no task knows whether it has read all of its rows,
and the driver's commit completes the write: Spark calls it only after all tasks have succeeded.
"""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, StringType

from spark_cas.core.errors import NotRoutedError
from spark_cas.spark.accelerators.input_stream import has_ended, until_cut_off
from spark_cas.spark.accelerators.quick_ack import acknowledged
from spark_cas.spark.schema import EndMarkers, mark_of, marks_by_topic

MARKER = "end marker of spark_cas.route e1c2f0d5-52f2-4b0e-9a4c-6d7f0a3b8e17"
"""The value of an end marker. If a frame was changed after `route`, the write finds it and rejects the frame."""

_POSITION = "_spark_cas_position"
_ROUTE = "Use spark_cas.route(df, options) with the options of the write, and do not change its result."


def with_end_markers(df: DataFrame, partitions: int) -> DataFrame:
    """Return the rows of a frame and an end marker for each partition."""
    number = (sf.col("id") - partitions).cast("int")
    return _with(df, df.sparkSession.range(0, partitions, 1, 1).select(number.alias("partition")))


def with_end_markers_of_topics(df: DataFrame, partitions: Mapping[str, int]) -> DataFrame:
    """Return the rows of a frame and an end marker for each partition of each topic."""
    counts = sf.create_map(*(sf.lit(each) for entry in partitions.items() for each in entry))
    topics = df.sparkSession.range(0, 1, 1, 1).select(sf.explode(counts).alias("topic", "count"))
    return _with(df, topics.select("topic", sf.explode(sf.sequence(-sf.col("count"), sf.lit(-1))).alias("partition")))


def _with(df: DataFrame, markers: DataFrame) -> DataFrame:
    """Return the rows and the end markers, which have the columns that identify their partition."""
    columns = []
    for field in df.schema:
        if field.name in markers.columns:
            column = sf.col(field.name).cast(field.dataType)
        elif field.name == "value" and isinstance(field.dataType, BinaryType | StringType):
            column = sf.lit(MARKER).cast(field.dataType)
        else:
            column = sf.lit(None).cast(field.dataType)
        columns.append(column.alias(field.name))
    return df.union(markers.select(*columns))


def with_positions(sorted_rows: DataFrame) -> DataFrame:
    """Return the rows in one task, in the order of its partitions. Each end marker has its position."""
    numbered = sorted_rows.coalesce(1).withColumn(_POSITION, sf.monotonically_increasing_id())
    position = sf.when(is_end_marker(), (-1 - sf.col(_POSITION)).cast("int")).otherwise(sf.col("partition"))
    return numbered.withColumn("partition", position).drop(_POSITION)


def is_end_marker() -> Column:
    """Return whether a row of a frame from `route` is an end marker."""
    return sf.col("partition") < 0


def end_markers_of(df: DataFrame) -> int:
    """Return the number of end markers in a frame, by its routing mark."""
    if "partition" not in df.columns:
        return 0
    marks = [mark_of(df.schema), *(marks_by_topic(df.schema) or {}).values()]
    return sum(mark.partitions for mark in marks if mark is not None and mark.end_markers != "none")


def without_end_markers(df: DataFrame) -> DataFrame:
    """Return the rows of a frame without end markers. A frame from `route` must be routed again for a write."""
    if not end_markers_of(df):
        return df
    condition = is_end_marker()
    if "value" in df.columns and isinstance(df.schema["value"].dataType, BinaryType | StringType):
        condition &= sf.col("value").cast("binary") == sf.lit(MARKER.encode())
    # A row with a null in one of these columns is no end marker.
    return df.where(~sf.coalesce(condition, sf.lit(False)))  # noqa: FBT003


def require_markers(markers: EndMarkers, *, in_one_task: bool, in_one_chunk: bool = False) -> None:
    """Raise NotRoutedError unless the end markers of a frame suit its write.

    The write needs all rows ``in_one_task``, or all rows of a partition ``in_one_chunk``.
    """
    if in_one_chunk and markers == "none":
        raise NotRoutedError(
            f"with the option atomic, a task must detect whether it has all of its rows, and only a frame from "
            f"spark_cas.route shows that. Nothing was appended. {_ROUTE}"
        )
    if in_one_task != (markers == "load"):
        raise NotRoutedError(
            f"only one of spark_cas.route and the write has the option atomic=load. On Kafka, route then puts all "
            f"rows into one task. Nothing was appended. {_ROUTE}"
        )


def before_end_markers(batches: Iterable[pa.RecordBatch], partitions: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, of which an end marker follows those of each partition, without the end markers.

    Raises:
        EOFError: The input ended before the end marker of a partition.
        NotRoutedError: A partition has rows after its end marker, or two end markers.
    """
    begun: set[int] = set()
    ended: set[int] = set()
    for rows, number in _pieces(batches):
        if rows.num_rows:
            numbers = set(pc.unique(rows.column("partition").drop_null()).to_pylist())
            _require_none(numbers & ended)
            begun |= numbers
            yield rows
        if number is not None:
            partition = number + partitions
            if not 0 <= partition < partitions:
                raise changed_after_route("the frame was routed twice")
            _require_none({partition} & ended)
            ended.add(partition)
    if begun - ended:
        raise EOFError(
            f"the input of this task ended without the end marker of partition {min(begun - ended)}: Spark ended "
            f"this attempt of the task, or the DataFrame was changed after spark_cas.route. The visible rows are a "
            f"prefix. Run the same job again: it resumes after them."
        )


def require_no_end_markers(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a frame that has no mark of end markers. Raises NotRoutedError if there is one."""
    for batch in batches:
        if _markers_in(batch):
            raise changed_after_route("its column partition was replaced")
        yield batch


def all_in_one_task(batches: Iterable[pa.RecordBatch], markers: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the one task of a load without its end markers, of which the last row is one.

    Raises NotRoutedError after the last row if the task does not have all rows of the load.
    """
    known, result, ended = 0, 0, True
    for rows, number in _pieces(batches):
        if rows.num_rows:
            ended = False
            known += rows.num_rows
            yield rows
        if number is not None:
            if number != -1 - known:
                raise _not_in_one_task()
            known, result, ended = known + 1, result + 1, True
    if known and not (ended and result == markers):
        raise _not_in_one_task()


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, int | None]]:
    """Yield rows, and the partition id of the end marker after them; None at the end of a batch."""
    for batch in batches:
        start = 0
        for at in _markers_in(batch):
            number = batch.column("partition")[at].as_py()
            if number is None or number >= 0:
                raise changed_after_route("its end markers have become rows")
            yield batch.slice(start, at - start), number
            start = at + 1
        yield batch.slice(start), None


def _markers_in(batch: pa.RecordBatch) -> list[int]:
    keys, values = batch.column("key"), batch.column("value")
    if not keys.null_count:
        return []
    result = pc.equal(values, pa.scalar(MARKER).cast(values.type)).fill_null(fill_value=False)
    return np.flatnonzero(pc.and_(result, keys.is_null()).to_numpy(zero_copy_only=False)).tolist()


def changed_after_route(how: str) -> NotRoutedError:
    """Return the error for rows that were moved or removed after `route`. ``how`` is the evidence."""
    return NotRoutedError(
        f"the DataFrame was changed after spark_cas.route: {how}. Visible rows stay. {_ROUTE} Then run the same job "
        f"again."
    )


def _require_none(again: set[int]) -> None:
    if again:
        raise changed_after_route(f"partition {min(again)} has rows after its end marker")


def _not_in_one_task() -> NotRoutedError:
    return NotRoutedError(
        f"a load with atomic=load on Kafka needs all rows in one task, and this task has only some of them. Nothing "
        f"was appended. {_ROUTE}"
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
