"""Loads with atomic=load, compared with Spark's own Kafka sink, and in a directory with loads without atomic=load."""

import os
from pathlib import Path

from pyspark.sql import DataFrame

from benchmarks.kafka_broker import Topics
from benchmarks.kafka_writing import sink_into
from benchmarks.measure import NO_SCRATCH, Result, compare
from benchmarks.rows import in_partitions
from benchmarks.sizes import PARTITIONS
from spark_cas import route


def compare_whole_topic_writes(rows: DataFrame, topics: Topics, repeats: int) -> Result:
    """Compare an atomic load on Kafka, in one task and one transaction, with Spark's own sink."""
    return compare(
        "Kafka write, atomic=load",
        lambda _: _append(rows, topics.options(topics.fresh()), "load"),
        lambda _: sink_into(in_partitions(rows), topics.options(topics.fresh())),
        goal="at least 0.5",
        scratch=NO_SCRATCH,
        repeats=repeats,
    )


def compare_whole_writes(rows: DataFrame, scratch: Path, repeats: int) -> Result:
    """Compare loads into a log in a directory, with and without atomic=load."""
    return compare(
        "write, atomic=load",
        lambda path: _append(rows, _directory(path), "load"),
        lambda path: _append(rows, _directory(path), "false"),
        goal="at least 0.9",
        scratch=scratch,
        repeats=repeats,
    )


def _directory(path: Path) -> dict[str, str]:
    return {"path": str(path), "partitions": str(PARTITIONS)}


def _append(rows: DataFrame, options: dict[str, str], atomic: str) -> None:
    ours = {**options, "job": f"benchmark-{os.urandom(6).hex()}", "atomic": atomic}
    route(rows, ours, by="partition").write.format("conditional-log").mode("append").options(**ours).save()
