"""Compare the input of a job with its rows in the log, by digests: of a complete job, or before an expansion."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_cas.core.digest import RunningDigest
from spark_cas.core.errors import InputChangedError
from spark_cas.core.outcome import rows_in_log_text
from spark_cas.core.plan import Completion, EarlierRows
from spark_cas.core.row_claims import split_claims
from spark_cas.spark.arrow_rows import by_partition, records_of
from spark_cas.spark.schema import PROGRESS

HASHED = StructType([PROGRESS[name] for name in ("partition", "rows", "digest")])


@dataclass(frozen=True, slots=True)
class Hashed:
    """The number of rows that one task has for a partition, and their digest."""

    partition: int
    rows: int
    digest: str


def hash_rows(pairs: Iterable[tuple[int, pa.RecordBatch]]) -> tuple[Hashed, ...]:
    """Hash one task's rows, given as (partition, rows), per partition. Expected offsets are not included."""
    digests: dict[int, RunningDigest] = {}
    for partition, rows in pairs:
        digests.setdefault(partition, RunningDigest()).update(split_claims(rows)[0])
    return tuple(Hashed(partition, digest.rows, digest.hexdigest()) for partition, digest in sorted(digests.items()))


def hashing(partitions: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for ``mapInArrow`` that applies `hash_rows` to a routed frame.

    Its rows have the columns of `HASHED`. A write of the frame results in the same row counts and digests.
    """

    def hashed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        result = hash_rows(by_partition(batches, partitions))
        yield pa.RecordBatch.from_pylist([asdict(each) for each in result], to_arrow_schema(HASHED))

    return hashed


def require_same(completion: Completion, hashed: Mapping[int, Hashed]) -> None:
    """Raise InputChangedError if the input of a partition differs from that of the completed job."""
    loaded = {result.progress.partition: result.progress for result in completion.partitions}
    for partition in sorted({*loaded, *hashed}):
        ours, theirs = hashed.get(partition), loaded.get(partition)
        rows, had = (ours.rows if ours else 0), (theirs.rows if theirs else 0)
        if rows != had:
            existing = f"it completed with {had} rows there, but the input now has {rows}"
        elif ours and theirs and ours.digest != theirs.digest:
            existing = f"its {had} rows there are not those of the input, or not in the same order"
        else:
            continue
        raise InputChangedError(
            f"partition {partition}: job {completion.job!r} is complete, and its input has changed since: "
            f"{existing}. Nothing was appended. Load only the new rows, under another job name. (In foreachBatch, "
            f"set the option batchId. Without it, the job is complete after its first batch.)",
            partition=partition,
            job=completion.job,
        )


def without(arranged: DataFrame, earlier: EarlierRows) -> DataFrame:
    """Return the rows of a frame without the first rows of each partition, which an earlier plan has appended.

    Each task compares the removed rows with the digest of that plan. If they differ, or are too few, it raises
    InputChangedError. It also does so if a partition that was complete has further rows. Spark runs no tasks for a
    frame that it knows to be empty, so for an empty frame this call raises the error. ``arranged`` has the rows of
    each partition of the earlier plan in the task of its number, and in that plan's order.
    """
    if arranged.isEmpty():
        first = next(partition for partition, rows in enumerate(earlier.rows) if rows)
        raise _changed(earlier, first, "the input now has none at all")
    return arranged.mapInArrow(_dropper(earlier), arranged.schema)


def _dropper(earlier: EarlierRows) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def dropped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        if task is None:
            raise AssertionError("rows are taken out within a task")
        partition, digest = task.partitionId(), RunningDigest()
        rows = earlier.rows[partition]
        for batch in batches:
            if any(result != partition for result, _ in by_partition([batch], earlier.partitions)):
                raise AssertionError("each partition is in the task of its number")
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
