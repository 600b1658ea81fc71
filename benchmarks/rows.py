"""The input: rows with a key of 10 bytes and a value of 100 bytes, in Parquet files that later runs reuse."""

import shutil
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from benchmarks.sizes import PARTITIONS

KEY_BYTES = 10
VALUE_BYTES = 100


def make_rows(spark: SparkSession, path: Path, rows: int) -> DataFrame:
    """Return ``key`` and ``value`` (binary) and ``partition`` (int) from Parquet files, and create missing files."""
    if not (path / "_SUCCESS").exists():
        shutil.rmtree(path, ignore_errors=True)
        _rows(spark.range(rows), sf.pmod(sf.xxhash64("id"), sf.lit(PARTITIONS))).write.parquet(str(path))
    return spark.read.parquet(str(path))


def in_partitions(rows: DataFrame, partitions: int = PARTITIONS) -> DataFrame:
    """Repartition and sort, as both sides of a write do first: one task per partition, in a fixed order."""
    return rows.repartitionById(partitions, sf.col("partition")).sortWithinPartitions("key", "value")


def spread(rows: DataFrame, partitions: int) -> DataFrame:
    """Return the rows with a column ``partition`` of ``partitions`` values, computed from the keys."""
    return rows.withColumn("partition", sf.pmod(sf.xxhash64("key"), sf.lit(partitions)).cast("int"))


def one_partition(spark: SparkSession, rows: int) -> DataFrame:
    """Return ordered rows of one partition in one task. Spark generates them during the write, without disk space."""
    return _rows(spark.range(0, rows, 1, 1), sf.lit(0))


def _rows(ids: DataFrame, partition: Column) -> DataFrame:
    return ids.select(
        _digits(sf.col("id"), KEY_BYTES).alias("key"),
        _digits(-sf.col("id"), VALUE_BYTES).alias("value"),
        partition.cast("int").alias("partition"),
    )


def _digits(number: Column, count: int) -> Column:
    """Return ``count`` hexadecimal digits of a hash: almost all rows are distinct, and compress badly."""
    text = number.cast("string")
    digits = sf.concat(sf.sha2(text, 256), sf.sha2(sf.reverse(text), 256))
    return sf.substring(digits, 1, count).cast("binary")
