"""Appending to topics exactly once, against Spark's own sink, which is at least once."""

import os

from pyspark.sql import DataFrame

from benchmarks.kafka_broker import Topics
from benchmarks.measure import NO_SCRATCH, Result, compare
from benchmarks.rows import in_partitions

GOALS = {"none": "at least 1", "lz4": "at least 1"}
"""By the producers' setting ``compression.type``."""


def compare_topic_writes(rows: DataFrame, topics: Topics, repeats: int) -> list[Result]:
    """The same rows in the same layout and order, into a new topic each time."""
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
    """Ours: rows that lie in one task per partition."""
    ours = {**options, "job": job or f"benchmark-{os.urandom(6).hex()}", "routed": "true"}
    routed.write.format("conditional-log").mode("append").options(**ours).save()


def sink_into(routed: DataFrame, options: dict[str, str]) -> None:
    """Spark's: each row goes to the partition of its column ``partition``."""
    routed.write.format("kafka").options(**options).save()
