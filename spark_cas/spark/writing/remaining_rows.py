"""The remaining input of a load after an expansion, without the rows that are already in the log."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext

from spark_cas.core.digest import RunningDigest
from spark_cas.core.errors import InputChangedError
from spark_cas.core.plan import EarlierRows
from spark_cas.core.refusal import rows_in_log_text
from spark_cas.spark.arrow_rows import by_partition, records_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def without(arranged: "DataFrame", earlier: EarlierRows) -> "DataFrame":
    """Return the rows of a frame without the first rows of each partition, which an earlier plan has appended.

    Each task compares the removed rows with the digest of that plan. If they differ, or are too few, it raises
    InputChangedError. It also does so if a partition that was complete has further rows. Spark runs no tasks for a
    frame that it knows to be empty, so for an empty frame this call raises the error.

    Args:
        arranged: The rows of each partition of the earlier plan, in the task of its number and in that plan's order.
        earlier: The rows that the plan has appended.
    """
    if arranged.isEmpty():
        first = next(partition for partition, rows in enumerate(earlier.rows) if rows)
        raise _changed(earlier, first, "the input now has none at all")
    return arranged.mapInArrow(_dropper(earlier), arranged.schema)


def _dropper(earlier: EarlierRows) -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    def dropped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        if task is None:
            msg = "rows are taken out within a task"
            raise AssertionError(msg)
        partition, digest = task.partitionId(), RunningDigest()
        rows = earlier.rows[partition]
        for batch in batches:
            if any(result != partition for result, _ in by_partition([batch], earlier.partitions)):
                msg = "each partition is in the task of its number"
                raise AssertionError(msg)
            used = min(rows - digest.rows, batch.num_rows)
            if used:
                digest.update(records_of(batch.slice(0, used)))
            if used < batch.num_rows and earlier.complete[partition]:
                raise _changed(earlier, partition, "these were all, but the input now has more")
            yield batch.slice(used)
        if digest.rows < rows:
            raise _changed(earlier, partition, f"the input now has only {digest.rows}")
        if rows and digest.hexdigest() != earlier.digests[partition]:
            raise _changed(earlier, partition, "the input now has others, or in another order")

    return dropped


def _changed(earlier: EarlierRows, partition: int, result: str) -> InputChangedError:
    return InputChangedError(
        f"partition {partition}: job {earlier.job!r} had appended {earlier.rows[partition]} rows before partitions "
        f"were added, and {result}. Run it with the same rows in the same order (save input first if each run "
        f"computes it differently), and change none of key, value, headers and timestamp after spark_cas.route. "
        f"{rows_in_log_text(earlier.job, sum(earlier.rows))} If the input is lost, load only the rows that the log "
        f"does not have, under another job name.",
        partition=partition,
        job=earlier.job,
    )
