"""A topic copied into another as a stream, exactly once, against Spark's own source and sink, at least once."""

import shutil
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
_COLUMNS = ("key", "value")


def compare_copies(spark: SparkSession, rows: DataFrame, topics: Topics, scratch: Path, repeats: int) -> Result:
    """All that one topic holds, in a few batches, into a new topic with as many partitions."""
    source = topics.kept()
    append_to(in_partitions(rows), topics.options(source))
    taken = str(rows.count() // _BATCHES)
    where = {"kafka.bootstrap.servers": topics.address, "subscribe": source, "startingOffsets": "earliest"}
    where |= {"maxOffsetsPerTrigger": taken, "kafka.isolation.level": "read_committed"}
    own = {name: value for name, value in where.items() if name != "kafka.isolation.level"}

    def ours(folder: Path) -> None:
        options = topics.options(topics.fresh(), job="copy", maxRecordsPerChunk=taken)
        records = spark.readStream.format("conditional-log").options(**own).load().select(*_COLUMNS)
        _run(route(records, options).writeStream.format("conditional-log").options(**options), folder)

    def peer(folder: Path) -> None:
        records = spark.readStream.format("kafka").options(**where).load().select(*_COLUMNS)
        # Laid out as ours is: each row to the partition of its key, through one exchange.
        laid_out = records.repartition(PARTITIONS, "key")
        _run(laid_out.writeStream.format("kafka").options(**topics.options(topics.fresh())), folder)

    return compare("Kafka copy, stream", ours, peer, goal="at least 0.9", scratch=scratch, repeats=repeats)


def _run(writer: DataStreamWriter, folder: Path) -> None:
    """Copy what is there, from an empty checkpoint."""
    shutil.rmtree(folder, ignore_errors=True)
    query = writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
