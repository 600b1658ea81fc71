"""A write to three brokers with a quota of bytes per second, which simulates a limited network."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.kafka_broker import CONF, Topics
from benchmarks.kafka_writing import append_to, sink_into
from benchmarks.measure import NO_SCRATCH, Result, compare
from benchmarks.rows import in_partitions, make_rows, spread
from tools.kafka_broker import KafkaCluster
from tools.kafka_broker.jars import java, kafka_jars

ROWS = 2_000_000
PARTITIONS = 6
"""Two partitions for each broker to lead."""
BYTES_PER_SECOND = 5_000_000
"""The rate that each broker accepts from all clients together, after the quota window of eleven seconds."""
_NODES = 3
_HEAP_MB = 512
_TOOL_SECONDS = 60


def compare_within_quota(spark: SparkSession, folder: Path, repeats: int) -> Result:
    """Compare writes of the same rows with three replicas: ours exactly once, Spark's sink at least once."""
    rows = spread(make_rows(spark, folder / f"rows-{ROWS}", ROWS), PARTITIONS)
    with _limited_brokers() as topics:
        return compare(
            "Kafka write, three brokers, quota",
            lambda _: append_to(in_partitions(rows, PARTITIONS), topics.options(topics.fresh(PARTITIONS))),
            lambda _: sink_into(in_partitions(rows, PARTITIONS), topics.options(topics.fresh(PARTITIONS))),
            goal="at least 0.98",
            scratch=NO_SCRATCH,
            repeats=repeats,
        )


@contextmanager
def _limited_brokers() -> Iterator[Topics]:
    settings = {"log.segment.delete.delay.ms": "1000"}
    with KafkaCluster(CONF, _NODES, settings=settings, heap_mb=_HEAP_MB, measured=True) as cluster:
        _limit(cluster.bootstrap)
        yield Topics(cluster.bootstrap, replication=_NODES)


def _limit(address: str) -> None:
    """Set the quota with Kafka's own tool, because librdkafka has no call for quotas."""
    command = [java(), "-cp", f"{kafka_jars()}/*", "kafka.admin.ConfigCommand", "--bootstrap-server", address]
    command += ["--alter", "--add-config", f"producer_byte_rate={BYTES_PER_SECOND}"]
    command += ["--entity-type", "users", "--entity-default"]
    subprocess.run(command, check=True, capture_output=True, timeout=_TOOL_SECONDS)
