"""Reading an embedded log against reading the same files as parquet."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.measure import Result, compare
from benchmarks.rows import in_partitions
from benchmarks.writing import append, discard

SCHEMA = "key binary, value binary, offset bigint"


def compare_reads(spark: SparkSession, rows: DataFrame, scratch: Path, repeats: int) -> Result:
    """The same three columns of the same chunk files, thrown away."""
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
