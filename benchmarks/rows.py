"""The input: rows with a key of 10 and a value of 100 bytes, in parquet, made once and used again."""

import shutil
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from benchmarks.sizes import PARTITIONS

KEY_BYTES = 10
VALUE_BYTES = 100


def make_rows(spark: SparkSession, path: Path, rows: int) -> DataFrame:
    """``key`` and ``value`` binary, ``partition`` int, in parquet under a path; what is there is used again."""
    if not (path / "_SUCCESS").exists():
        shutil.rmtree(path, ignore_errors=True)
        _rows(spark.range(rows), sf.pmod(sf.xxhash64("id"), sf.lit(PARTITIONS))).write.parquet(str(path))
    return spark.read.parquet(str(path))


def in_partitions(rows: DataFrame, partitions: int = PARTITIONS) -> DataFrame:
    """What both sides of a write do first: each partition in one task, its rows in one order."""
    return rows.repartitionById(partitions, sf.col("partition")).sortWithinPartitions("key", "value")


def spread(rows: DataFrame, partitions: int) -> DataFrame:
    """The rows, over as many partitions as are asked for, by their keys."""
    return rows.withColumn("partition", sf.pmod(sf.xxhash64("key"), sf.lit(partitions)).cast("int"))


def one_partition(spark: SparkSession, rows: int) -> DataFrame:
    """Rows of one log partition in one task, ordered, made while they are written: they take no disk."""
    return _rows(spark.range(0, rows, 1, 1), sf.lit(0))


def _rows(ids: DataFrame, partition: Column) -> DataFrame:
    return ids.select(
        _digits(sf.col("id"), KEY_BYTES).alias("key"),
        _digits(-sf.col("id"), VALUE_BYTES).alias("value"),
        partition.cast("int").alias("partition"),
    )


def _digits(number: Column, count: int) -> Column:
    """Hexadecimal digits of a hash: as many bytes, hardly two rows alike, and little to compress."""
    text = number.cast("string")
    digits = sf.concat(sf.sha2(text, 256), sf.sha2(sf.reverse(text), 256))
    return sf.substring(digits, 1, count).cast("binary")
