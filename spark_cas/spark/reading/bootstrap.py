"""`bootstrap`: the records, the state and the expected offsets of a log at one bound."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from spark_cas.spark.reading.pinned_bounds import PinnedBounds, PinnedLog
from spark_cas.spark.schema import OFFSETS, RECORDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STATE = StructType([RECORDS[name] for name in ("key", "value", "partition", "offset", "timestamp")])
"""Columns of a state: the newest value of each key, and the position of its record."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """A log at one bound. None of its DataFrames contains records that were appended later."""

    records: "DataFrame"
    """All records below the bound, with the columns of a read."""
    state: "DataFrame"
    """The newest value of each key: key binary, value binary, partition int, offset bigint, timestamp timestamp.

    Records without a key, and keys whose newest value is null (a tombstone), are not in it.

    Offsets order the records of one partition only. A key with records in several partitions therefore has a row for
    each, as in a Kafka Streams table. If `route` placed the rows by key, each key has one row. This includes logs to
    which partitions were added: of each key, only rows of the newest layout that it was written under are in the
    state.
    """
    offsets: "DataFrame"
    """The bound, one row per partition, with the columns of the view ``offsets``."""
    expected_offsets: str
    """The bound as the option ``expectedOffsets``. A write with it fails if records were appended after the bound."""


def bootstrap(spark: "SparkSession", path_or_options: str | Mapping[str, str | float]) -> Bootstrap:
    """Pin the end offset of each partition, and return the records, the state and the offsets below these ends.

    This call reads only the end offsets, after all transactions below them have ended. Spark reads the records and
    computes the state when the DataFrames are used. If the log was recreated or lost records by then, Spark's error
    contains TruncatedError.

    On a compacted topic, each use must finish within ``delete.retention.ms`` of this call (a day by default). A
    slower scan may read the value of a deleted key, but miss its deletion. This function does not check the time;
    ``jobs/bootstrap_state.py`` does.

    Args:
        spark: The session that reads the log.
        path_or_options: The path of the log (``kafka://host:9092/flights`` for a topic), or a dict of the options of
            a read.

    Returns:
        The log at the pinned end offsets.

    Raises:
        OptionError: The options select a part of the log, or several logs.
        LogNotFoundError: The log does not exist.
        SparkSetupError: Spark's workers run a Python without spark_cas.
        StorageError: The log cannot be read. On Kafka, also if a transaction stays open for longer than
            ``openTransactionWaitMs``.
    """
    log = PinnedLog(spark, path_or_options)
    return Bootstrap(
        records=log.read(log.at.start_offsets),
        state=state_of(log),
        offsets=spark.createDataFrame(log.at.rows(), OFFSETS),
        expected_offsets=log.at.expected_offsets,
    )


def state_of(log: PinnedLog) -> "DataFrame":
    """Return the state of a log at its bound."""
    return latest(log.read(log.at.start_offsets, STATE, newest=True), log.at)


def latest(records: "DataFrame", at: PinnedBounds) -> "DataFrame":
    """Return the state that results from these records, with the columns of `STATE`.

    The records need to include only the newest one of each key in each partition. Spark aggregates them, and spills
    to disk if the keys exceed the memory of a task.

    Args:
        records: Records with the columns of `STATE`.
        at: The bound of the log that they were read at.
    """
    newest = sf.max_by(sf.struct("value", "offset", "timestamp"), "offset").alias("newest")
    grouped = records.where("key IS NOT NULL").groupBy("partition", "key").agg(newest)
    if any(at.thresholds):
        grouped = _of_last_layout(grouped, at)
    return grouped.where("newest.value IS NOT NULL").select(
        "key", "newest.value", "partition", "newest.offset", "newest.timestamp"
    )


def _of_last_layout(grouped: "DataFrame", at: PinnedBounds) -> "DataFrame":
    """Return the rows of each key that are from the newest layout it was written under. Other rows are older."""
    starts = grouped.sparkSession.createDataFrame(
        [*enumerate(map(list, at.layout_starts()))], "partition INT, starts ARRAY<BIGINT>"
    )
    begun = sf.size(sf.filter("starts", lambda start: start <= sf.col("newest.offset")))
    layouts = grouped.join(sf.broadcast(starts), "partition").withColumn("layout", begun)
    last = sf.max("layout").over(Window.partitionBy("key"))
    return layouts.withColumn("last", last).where("layout = last")
