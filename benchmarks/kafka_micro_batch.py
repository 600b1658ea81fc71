"""Small micro-batches from topic to topic, exactly once, compared with Spark's own source and sink, at least once."""

import shutil
import statistics
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.kafka_broker import Topics
from benchmarks.kafka_writing import append_to
from benchmarks.measure import Result
from benchmarks.rows import in_partitions, make_rows
from benchmarks.sizes import PARTITIONS
from spark_cas import route

ROWS = 1_000
"""Rows per micro-batch."""
BATCHES = 16
"""Micro-batches per query."""
_WARMING_UP = 6
"""The first micro-batches of a query, which are not counted: its processes start and connect."""
_COLUMNS = ("key", "value")
TOTAL = "triggerExecution"
_GOALS = {"without rows": "at least 0.67", f"of {ROWS:,} rows": "at least 0.4"}

Phases = dict[str, int]
"""The milliseconds of a micro-batch by phase, from the progress of the query."""


def compare_micro_batches(
    spark: SparkSession, folder: Path, topics: Topics, scratch: Path, repeats: int
) -> list[Result]:
    """Compare batches of ``ROWS`` rows, and batches without a row for the sink: the fixed cost of a batch."""
    copies = Copies(spark, folder, topics)
    results = []
    for name, goal in _GOALS.items():
        title, empty = f"Kafka micro-batch {name}", name == "without rows"
        found: dict[str, list[Phases]] = {"ours": [], "peer": []}
        for turn in range(repeats + 1):
            for side, query in (("ours", copies.ours), ("peer", copies.peer)):
                batches = run_batches(query(empty=empty), scratch / f"{side}-{turn}")
                if turn:
                    found[side] += batches
                    print(f"{title}, {side}, {turn} of {repeats}: {told_of(batches)}", flush=True)
        ours, peer = (median_of(found[side], TOTAL) for side in ("ours", "peer"))
        results.append(Result(title, ours, peer, "ms", goal))
    return results


class Copies:
    """The same copying query for each side."""

    def __init__(self, spark: SparkSession, folder: Path, topics: Topics) -> None:
        source = topics.kept()
        rows = make_rows(spark, folder / f"rows-{ROWS * BATCHES}", ROWS * BATCHES)
        append_to(in_partitions(rows), topics.options(source))
        self._spark = spark
        self._topics = topics
        self._where = {
            "kafka.bootstrap.servers": topics.address,
            "subscribe": source,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(ROWS),
        }

    def ours(self, *, empty: bool) -> DataStreamWriter:
        options = self._topics.options(self._topics.fresh(), job="copy")
        routed = route(self._records("conditional-log", self._where, empty=empty), options)
        return routed.writeStream.format("conditional-log").options(**options)

    def peer(self, *, empty: bool) -> DataStreamWriter:
        where = {**self._where, "kafka.isolation.level": "read_committed"}
        # The same layout as ours: one exchange partitions the rows by key.
        laid_out = self._records("kafka", where, empty=empty).repartition(PARTITIONS, "key")
        return laid_out.writeStream.format("kafka").options(**self._topics.options(self._topics.fresh()))

    def _records(self, source: str, where: dict[str, str], *, empty: bool) -> DataFrame:
        records = self._spark.readStream.format(source).options(**where).load().select(*_COLUMNS)
        return records.where(sf.length("value") == 0) if empty else records


def run_batches(writer: DataStreamWriter, folder: Path) -> list[Phases]:
    """Run a query, and return the phases of its batches without the first ones."""
    running = writer.option("checkpointLocation", str(folder)).start()
    try:
        running.processAllAvailable()
        batches = [each for each in running.recentProgress if each.numInputRows]
    finally:
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return [dict(each.durationMs) for each in batches[_WARMING_UP:]]


def told_of(batches: list[Phases]) -> str:
    """Return the medians in milliseconds, in total and by phase, as text."""
    phases = sorted({phase for batch in batches for phase in batch} - {TOTAL})
    return ", ".join(f"{phase} {median_of(batches, phase):.0f}" for phase in (TOTAL, *phases))


def median_of(batches: list[Phases], phase: str) -> float:
    """Return the median of a phase in milliseconds."""
    return statistics.median(batch.get(phase, 0) for batch in batches)
