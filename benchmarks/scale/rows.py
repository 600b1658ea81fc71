"""The cost of a load by rows and by partitions, compared with Spark's own writers."""

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from benchmarks.kafka_broker import Topics
from benchmarks.kafka_writing import append_to, sink_into
from benchmarks.rows import KEY_BYTES, in_partitions, make_rows
from benchmarks.scale.series import Series, Work, in_turn
from benchmarks.writing import append

PARTITIONS = 16
"""Partitions of the loads that differ in rows. The rows of two tasks, one per core, fit into Spark's memory."""

Writes = Mapping[str, Callable[[DataFrame, int], None]]
"""By name, a function that writes rows into so many partitions of a new log, folder or topic."""


def in_directories(scratch: Path) -> Writes:
    """Return appends to a log, and Spark's Parquet writer."""

    def written(write: Callable[[DataFrame, Path, int], None], rows: DataFrame, partitions: int) -> None:
        path = scratch / "grown"
        try:
            write(rows, path, partitions)
        finally:
            shutil.rmtree(path, ignore_errors=True)

    return {
        "directory": partial(written, lambda rows, path, partitions: append(rows, path, partitions=partitions)),
        "Spark's Parquet": partial(written, lambda rows, path, _: rows.write.parquet(str(path))),
    }


def in_topics(topics: Topics) -> Writes:
    """Return appends to a topic, and Spark's Kafka sink."""
    return {
        "Kafka": lambda rows, partitions: append_to(rows, topics.options(topics.fresh(partitions))),
        "Spark's Kafka sink": lambda rows, partitions: sink_into(rows, topics.options(topics.fresh(partitions))),
    }


def grow_rows(spark: SparkSession, folder: Path, writes: Writes, repeats: Mapping[int, int]) -> list[Series]:
    """Measure loads of each number of rows, all multiples of the smallest. ``repeats`` has the turns by size."""
    least = min(repeats)
    rows = make_rows(spark, folder / f"rows-{least}", least)
    return in_turn(
        "rows", _works(writes, {size: (_times(rows, size // least), PARTITIONS) for size in repeats}), repeats
    )


def grow_partitions(
    spark: SparkSession, folder: Path, rows: int, writes: Writes, repeats: Mapping[int, int]
) -> list[Series]:
    """Measure the same rows with each number of partitions. Each partition is a task, a claim and an append."""
    made = make_rows(spark, folder / f"rows-{rows}", rows)
    return in_turn("partitions", _works(writes, {size: (made, size) for size in repeats}), repeats)


def _works(writes: Writes, loads: Mapping[int, tuple[DataFrame, int]]) -> dict[str, dict[int, Work]]:
    placed = {size: (in_partitions(_placed(rows, count), count), count) for size, (rows, count) in loads.items()}
    return {name: {size: partial(write, *load) for size, load in placed.items()} for name, write in writes.items()}


def _placed(rows: DataFrame, partitions: int) -> DataFrame:
    return rows.withColumn("partition", sf.pmod(sf.xxhash64("key"), sf.lit(partitions)).cast("int"))


def _times(rows: DataFrame, times: int) -> DataFrame:
    """Repeat each row. The keys keep its copies far apart after a sort, so that they do not compress."""
    copies = rows.withColumn("copy", sf.explode(sf.sequence(sf.lit(1), sf.lit(times))))
    salt = sf.unhex(sf.lpad(sf.hex("copy"), 2, "0"))
    return copies.withColumn("key", sf.concat(salt, sf.substring("key", 2, KEY_BYTES))).drop("copy")
