"""Exactly-once appends to topics, compared with Spark's own sink, which is at least once."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from benchmarks.kafka_broker import Topics
from benchmarks.measure import NO_SCRATCH, Result, compare
from benchmarks.rows import in_partitions, make_rows, spread
from benchmarks.sizes import PARTITIONS

GOALS = {"none": "at least 1", "lz4": "at least 1"}
"""Goals by the producers' setting ``compression.type``."""


_ONE_KB = 10
"""The number of concatenated values."""
_HEADERS = 3


@dataclass(frozen=True, slots=True)
class _Shape:
    """A write that differs from the default comparison."""

    name: str
    rows: int
    goal: str
    partitions: int = PARTITIONS
    reshaped: Callable[[DataFrame], DataFrame] = lambda rows: rows


def _with_long_values(rows: DataFrame) -> DataFrame:
    return rows.withColumn("value", sf.concat(*[sf.col("value")] * _ONE_KB))


def _with_headers(rows: DataFrame) -> DataFrame:
    header = sf.struct(sf.lit("name").alias("key"), sf.col("key").alias("value"))
    return rows.withColumn("headers", sf.array(*[header] * _HEADERS))


SHAPES = (
    _Shape("1,000 rows", 1_000, "at least 0.4"),
    _Shape("200,000 rows", 200_000, "at least 0.8"),
    _Shape("values of 1 KB", 1_000_000, "at least 1", reshaped=_with_long_values),
    _Shape("three headers", 1_000_000, "at least 0.8", reshaped=_with_headers),
    _Shape("64 partitions", 1_000_000, "at least 0.95", 64, partial(spread, partitions=64)),
)


def compare_shaped_writes(spark: SparkSession, folder: Path, topics: Topics, repeats: int) -> list[Result]:
    """Compare uncompressed writes of few rows, large rows, rows with headers, and rows in many partitions."""
    return [
        _compare_as(
            shape, shape.reshaped(make_rows(spark, folder / f"rows-{shape.rows}", shape.rows)), topics, repeats
        )
        for shape in SHAPES
    ]


def _compare_as(shape: _Shape, rows: DataFrame, topics: Topics, repeats: int) -> Result:
    def routed() -> DataFrame:
        return in_partitions(rows, shape.partitions)

    return compare(
        f"Kafka write, {shape.name}",
        lambda _: append_to(routed(), topics.options(topics.fresh(shape.partitions))),
        lambda _: sink_into(routed(), topics.options(topics.fresh(shape.partitions))),
        goal=shape.goal,
        scratch=NO_SCRATCH,
        repeats=repeats,
    )


def compare_topic_writes(rows: DataFrame, topics: Topics, repeats: int) -> list[Result]:
    """Compare writes of the same rows in the same layout and order, each into a new topic."""
    return [_compare(rows, topics, codec, repeats) for codec in GOALS]


def _compare(rows: DataFrame, topics: Topics, codec: str, repeats: int) -> Result:
    return compare(
        f"Kafka write, {codec}",
        lambda _: append_to(in_partitions(rows), topics.options(topics.fresh(), **{"kafka.compression.type": codec})),
        lambda _: sink_into(in_partitions(rows), topics.options(topics.fresh(), **{"kafka.compression.type": codec})),
        goal=GOALS[codec],
        scratch=NO_SCRATCH,
        repeats=repeats,
    )


def append_to(routed: DataFrame, options: dict[str, str], job: str | None = None) -> None:
    """Append with our sink. The rows of each partition must be in one task."""
    ours = {**options, "job": job or f"benchmark-{os.urandom(6).hex()}", "routed": "true"}
    routed.write.format("conditional-log").mode("append").options(**ours).save()


def sink_into(routed: DataFrame, options: dict[str, str]) -> None:
    """Write with Spark's sink, which uses the column ``partition``."""
    routed.write.format("kafka").options(**options).save()
