"""Compare the input of a job that is complete with the rows in the log, and append nothing."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_cas.core.digest import RunningDigest
from spark_cas.core.errors import InputChangedError
from spark_cas.core.plan import Completion
from spark_cas.core.row_claims import split_claims
from spark_cas.spark.arrow_rows import by_partition
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
