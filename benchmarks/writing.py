"""Writes to a log in a directory, compared with Parquet; and `route`, compared with a bare repartition."""

from pathlib import Path

from pyspark.sql import DataFrame

from benchmarks.measure import Result, compare
from benchmarks.rows import in_partitions
from benchmarks.sizes import PARTITIONS
from spark_cas import route


def append(routed: DataFrame, log: Path, *, partitions: int = PARTITIONS) -> None:
    """Append rows to a log, and create a missing log. The rows of each partition must be in one task."""
    options = {"job": "benchmark", "routed": "true", "partitions": str(partitions)}
    routed.write.format("conditional-log").mode("append").options(**options).save(str(log))


def compare_writes(rows: DataFrame, scratch: Path, repeats: int) -> Result:
    """Compare writes of the same rows. Both sides repartition and sort them in the same way."""
    return compare(
        "write",
        lambda path: append(in_partitions(rows), path),
        lambda path: in_partitions(rows).write.parquet(str(path)),
        goal="at least 0.95",
        scratch=scratch,
        repeats=repeats,
    )


def compare_routes(rows: DataFrame, scratch: Path, repeats: int) -> Result:
    """Compare `route`, which computes the partition from the key, with a repartition by a column. Neither writes."""
    unplaced = rows.select("key", "value")
    options = {"path": str(scratch / "unmade"), "job": "benchmark", "partitions": str(PARTITIONS)}
    return compare(
        "route",
        lambda _: discard(route(unplaced, options)),
        lambda _: discard(in_partitions(rows)),
        goal="at least 0.85",
        scratch=scratch,
        repeats=repeats,
    )


def discard(frame: DataFrame) -> None:
    """Compute all rows and discard them."""
    frame.write.format("noop").mode("overwrite").save()
