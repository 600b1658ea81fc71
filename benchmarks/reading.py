"""Reads of a log in a directory, compared with reads of the same files as Parquet."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.measure import Result, compare
from benchmarks.rows import in_partitions
from benchmarks.writing import append, discard

SCHEMA = "key binary, value binary, offset bigint"


def compare_reads(spark: SparkSession, rows: DataFrame, scratch: Path, repeats: int) -> Result:
    """Read the same three columns of the same chunk files, and discard the rows."""
    log = scratch / "log"
    append(in_partitions(rows), log)
    ours = spark.read.format("conditional-log").schema(SCHEMA)
    return compare(
        "read",
        lambda _: discard(ours.load(str(log))),
        lambda _: discard(spark.read.parquet(str(log)).select("key", "value", "offset")),
        goal="at least 0.85",
        scratch=scratch,
        repeats=repeats,
    )
