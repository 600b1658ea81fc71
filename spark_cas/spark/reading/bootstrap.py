"""`bootstrap`: what a log holds up to one bound, its state there, and what the next write has to expect."""

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
"""The columns of a state: of each key the newest value, and the record that it comes from."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """A log at one bound: whatever is appended later is in none of these, however often they are computed."""

    records: "DataFrame"
    """All records below the bound, in the columns of a read."""
    state: "DataFrame"
    """The newest value of each key: key binary, value binary, partition int, offset bigint, timestamp timestamp.

    A key whose newest value is null (a tombstone) is not in it, and a record without a key changes nothing. Offsets
    order one partition only, so a key that lies in several partitions has a row in each, as it would in a table of
    Kafka Streams; rows that `route` placed by key have one. So they have where partitions were added since: what was
    written under a later layout of the log is newer, and a key has rows of the last one that it was written under.
    """
    offsets: "DataFrame"
    """The bound, a row per partition, in the columns of the view ``offsets``."""
    expected_offsets: str
    """The bound as the option ``expectedOffsets`` of a write: it is refused if anything was appended since."""


def bootstrap(spark: "SparkSession", path_or_options: str | Mapping[str, str | float]) -> Bootstrap:
    """Pin where each partition ends now, and return what lies below: nothing of it is undecided or stale.

    ``path_or_options`` is the log's path (``kafka://host:9092/flights`` for a topic), or a dict of the options of a
    read. The ends are asked for here; records are read, and the state is computed by Spark, when the frames are used:
    if by then the log was deleted and recreated, or lost records, they end in TruncatedError, which Spark's carries.
    On a compacted topic a use has to end within its ``delete.retention.ms`` (a day, unless set) of this call: a
    slower scan may read the value of a key that was deleted, and not find the deletion any more. Nothing watches
    that here; ``jobs/bootstrap_state.py`` does.

    Raises OptionError for options that choose a part of the log; LogNotFoundError; StorageError, on Kafka also when
    somebody's transaction stays open for longer than ``claimTimeoutMs``.
    """
    log = PinnedLog(spark, path_or_options)
    return Bootstrap(
        records=log.read(log.at.start_offsets),
        state=state_of(log),
        offsets=spark.createDataFrame(log.at.rows(), OFFSETS),
        expected_offsets=log.at.expected_offsets,
    )


def state_of(log: PinnedLog) -> "DataFrame":
    """The state of a log at its bound."""
    return latest(log.read(log.at.start_offsets, STATE, newest=True), log.at)


def latest(records: "DataFrame", at: PinnedBounds) -> "DataFrame":
    """The state, in the columns of `STATE`, that records in these columns lead to, of a log as it was found.

    Of the records of a key in a partition the newest one is enough.

    An aggregation of Spark: it goes to disk when keys outgrow the memory of a task.
    """
    newest = sf.max_by(sf.struct("value", "offset", "timestamp"), "offset").alias("newest")
    grouped = records.where("key IS NOT NULL").groupBy("partition", "key").agg(newest)
    if any(at.thresholds):
        grouped = _of_last_layout(grouped, at)
    return grouped.where("newest.value IS NOT NULL").select(
        "key", "newest.value", "partition", "newest.offset", "newest.timestamp"
    )


def _of_last_layout(grouped: "DataFrame", at: PinnedBounds) -> "DataFrame":
    """Of each key the rows of the last layout that it was written under: those of earlier partitions are older."""
    starts = grouped.sparkSession.createDataFrame(
        [*enumerate(map(list, at.layout_starts()))], "partition INT, starts ARRAY<BIGINT>"
    )
    begun = sf.size(sf.filter("starts", lambda start: start <= sf.col("newest.offset")))
    layouts = grouped.join(sf.broadcast(starts), "partition").withColumn("layout", begun)
    last = sf.max("layout").over(Window.partitionBy("key"))
    return layouts.withColumn("last", last).where("layout = last")
