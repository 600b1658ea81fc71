"""The time to a correct log after a load was killed near its end."""

import statistics
from threading import Event, Thread

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from benchmarks.kafka_broker import Topics
from benchmarks.kafka_writing import append_to, sink_into
from benchmarks.measure import Result, seconds_of
from benchmarks.rows import in_partitions
from spark_cas import open_log
from spark_cas.log.load.planning import job_progress

_KILLED_AT = 0.9
_EVERY_SECONDS = 0.02
_CHUNKS = 40
"""Chunks of a load. They are small, so that the load can be killed near the intended share."""


def compare_killed(spark: SparkSession, rows: DataFrame, topics: Topics, repeats: int) -> Result:
    """Compare the seconds after the kill: ours reruns the same job, the peer loads all rows into a new topic.

    Spark's sink does not record its progress, so the rows that it wrote before the kill cannot be used.
    """
    count = rows.count()
    ours, peer = [], []
    for turn in range(1, repeats + 1):
        options = topics.options(topics.fresh(), maxRecordsPerChunk=str(count // _CHUNKS))
        share = _kill(spark, rows, topics, options, count)
        ours.append(seconds_of(lambda: append_to(in_partitions(rows), options, job=options["topic"])))  # noqa: B023 - runs immediately
        peer.append(seconds_of(lambda: sink_into(in_partitions(rows), topics.options(topics.fresh()))))
        print(f"Kafka killed at {share:.0%}, {turn} of {repeats}: {ours[-1]:.2f} s, {peer[-1]:.2f} s", flush=True)
    goal = "at least 4"
    return Result("Kafka, killed at 90 %", statistics.median(ours), statistics.median(peer), "s", goal)


def _kill(spark: SparkSession, rows: DataFrame, topics: Topics, options: dict[str, str], count: int) -> float:
    """Start a load, cancel it when the broker has 90 % of its rows, and return the committed share."""
    over, topic = Event(), options["topic"]

    def cancel_in_time() -> None:
        while not over.wait(_EVERY_SECONDS):
            if topics.records(topic) >= _KILLED_AT * count:
                spark.sparkContext.cancelAllJobs()
                return

    watcher = Thread(target=cancel_in_time)
    watcher.start()
    try:
        append_to(in_partitions(rows), options, job=options["topic"])
    except (PySparkException, Py4JError):
        with open_log(f"kafka://{topics.address}/{topic}") as log:
            return sum(progress.rows for progress in job_progress(log, topic)) / count
    finally:
        over.set()
        watcher.join()
    raise RuntimeError("the load had ended before it was killed: use more rows")
