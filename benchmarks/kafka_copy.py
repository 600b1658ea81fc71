"""A streaming copy of a topic, exactly once, compared with Spark's own source and sink, at least once."""

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.kafka_broker import Topics
from benchmarks.kafka_writing import append_to
from benchmarks.measure import Result, compare
from benchmarks.rows import in_partitions
from benchmarks.sizes import PARTITIONS
from spark_cas import route

_BATCHES = 8
_KEY_AND_VALUE = ("key", "value")
_WITH_PLACE = (*_KEY_AND_VALUE, "partition")
_COMMITTED = {"kafka.isolation.level": "read_committed"}


def compare_copies(spark: SparkSession, rows: DataFrame, topics: Topics, scratch: Path, repeats: int) -> list[Result]:
    """Copy all records of a topic, in a few batches, into a new topic with the same number of partitions.

    In the first comparison each record keeps its partition. In the second its key decides the partition.
    """
    source = topics.kept()
    append_to(in_partitions(rows), topics.options(source))
    taken = str(rows.count() // _BATCHES)
    where = {"kafka.bootstrap.servers": topics.address, "subscribe": source, "startingOffsets": "earliest"}
    where |= {"maxOffsetsPerTrigger": taken}

    def records(source: str, columns: Sequence[str], **more: str) -> DataFrame:
        return spark.readStream.format(source).options(**where, **more).load().select(*columns)

    def writing() -> dict[str, str]:
        return topics.options(topics.fresh(), job="copy", maxRecordsPerChunk=taken)

    def ours(folder: Path) -> None:
        routed = {**writing(), "routed": "true"}
        _run(records("conditional-log", _WITH_PLACE).writeStream.format("conditional-log").options(**routed), folder)

    def peer(folder: Path) -> None:
        read = records("kafka", _WITH_PLACE, **_COMMITTED)
        _run(read.writeStream.format("kafka").options(**topics.options(topics.fresh())), folder)

    def ours_by_key(folder: Path) -> None:
        options = writing()
        routed = route(records("conditional-log", _KEY_AND_VALUE), options)
        _run(routed.writeStream.format("conditional-log").options(**options), folder)

    def peer_by_key(folder: Path) -> None:
        # The same layout as ours: one exchange partitions the rows by key.
        laid_out = records("kafka", _KEY_AND_VALUE, **_COMMITTED).repartition(PARTITIONS, "key")
        _run(laid_out.writeStream.format("kafka").options(**topics.options(topics.fresh())), folder)

    compare_copy = partial(compare, goal="at least 0.9", scratch=scratch, repeats=repeats)
    return [
        compare_copy("Kafka copy, stream", ours, peer),
        compare_copy("Kafka copy, stream, by key", ours_by_key, peer_by_key),
    ]


def _run(writer: DataStreamWriter, folder: Path) -> None:
    """Copy all existing records, from an empty checkpoint."""
    shutil.rmtree(folder, ignore_errors=True)
    query = writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
