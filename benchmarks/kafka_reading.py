"""Reads of a topic, compared with Spark's own source."""

from pyspark.sql import DataFrame, SparkSession

from benchmarks.kafka_broker import Topics
from benchmarks.kafka_writing import append_to
from benchmarks.measure import NO_SCRATCH, Result, compare
from benchmarks.rows import in_partitions

SCHEMA = "key binary, value binary, offset bigint"


def compare_topic_reads(spark: SparkSession, rows: DataFrame, topics: Topics, repeats: int) -> list[Result]:
    """Read the committed records of a topic and discard them: with three columns, and with all columns."""
    topic = topics.fresh()
    append_to(in_partitions(rows), topics.options(topic))
    where = {"kafka.bootstrap.servers": topics.address, "subscribe": topic}
    ours = spark.read.format("conditional-log").options(**where)
    three = spark.read.format("conditional-log").schema(SCHEMA).options(**where)
    peer = spark.read.format("kafka").options(**where, **{"kafka.isolation.level": "read_committed"})
    return [
        compare(
            "Kafka read",
            lambda _: _discard(three.load()),
            lambda _: _discard(peer.load().select("key", "value", "offset")),
            goal="at least 1.6",
            scratch=NO_SCRATCH,
            repeats=repeats,
        ),
        compare(
            "Kafka read, all columns",
            lambda _: _discard(ours.load()),
            lambda _: _discard(peer.option("includeHeaders", "true").load()),
            goal="at least 1.2",
            scratch=NO_SCRATCH,
            repeats=repeats,
        ),
    ]


def _discard(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()
