"""`bootstrap`: the records, the state and the expected offsets of a log at one bound."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from spark_cas.core.errors import OptionError
from spark_cas.core.offsets import Bounds
from spark_cas.log import clock
from spark_cas.options.parse import as_text, parse_read
from spark_cas.options.table import VIEW_NEWEST
from spark_cas.spark.schema import OFFSETS, RECORDS, read_schema
from spark_cas.spark.setup import collected

STATE = StructType([RECORDS[name] for name in ("key", "value", "partition", "offset", "timestamp")])
"""Columns of a state: the newest value of each key, and the position of its record."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """A log at one bound. None of its DataFrames contains records that were appended later."""

    records: DataFrame
    """All records below the bound, with the columns of a read."""
    state: DataFrame
    """The newest value of each key: key binary, value binary, partition int, offset bigint, timestamp timestamp.

    Records without a key, and keys whose newest value is null (a tombstone), are not in it.

    Offsets order the records of one partition only. A key with records in several partitions therefore has a row for
    each, as in a Kafka Streams table. If `route` placed the rows by key, each key has one row. This includes logs to
    which partitions were added: of each key, only rows of the newest layout that it was written under are in the
    state.
    """
    offsets: DataFrame
    """The bound, one row per partition, with the columns of the view ``offsets``."""
    expected_offsets: str
    """The bound as the option ``expectedOffsets``. A write with it fails if records were appended after the bound."""


def bootstrap(spark: SparkSession, path_or_options: str | Mapping[str, str | float | None]) -> Bootstrap:
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


def state_of(log: "PinnedLog") -> DataFrame:
    """Return the state of a log at its bound."""
    return latest(log.read(log.at.start_offsets, STATE, newest=True), log.at)


def latest(records: DataFrame, at: "PinnedBounds") -> DataFrame:
    """Return the state that results from these records, with the columns of `STATE`.

    The records need to include only the newest one of each key in each partition. Spark aggregates them, and spills
    to disk if the keys exceed the memory of a task.
    """
    newest = sf.max_by(sf.struct("value", "offset", "timestamp"), "offset").alias("newest")
    grouped = records.where("key IS NOT NULL").groupBy("partition", "key").agg(newest)
    if any(at.thresholds):
        grouped = _of_last_layout(grouped, at)
    return grouped.where("newest.value IS NOT NULL").select(
        "key", "newest.value", "partition", "newest.offset", "newest.timestamp"
    )


def _of_last_layout(grouped: DataFrame, at: "PinnedBounds") -> DataFrame:
    """Return the rows of each key that are from the newest layout it was written under. Other rows are older."""
    starts = grouped.sparkSession.createDataFrame(
        [*enumerate(map(list, at.layout_starts()))], "partition INT, starts ARRAY<BIGINT>"
    )
    begun = sf.size(sf.filter("starts", lambda start: start <= sf.col("newest.offset")))
    layouts = grouped.join(sf.broadcast(starts), "partition").withColumn("layout", begun)
    last = sf.max("layout").over(Window.partitionBy("key"))
    return layouts.withColumn("last", last).where("layout = last")


@dataclass(frozen=True, slots=True)
class PinnedBounds:
    """The bounds of all partitions of a log at one moment.

    All appends that were acknowledged before that moment are below the end offsets.
    """

    topic: str
    log_id: str
    layout_epoch: int
    bounds: tuple[Bounds, ...]
    pinned_at_ms: int
    """The time just before the bounds were read, in milliseconds since 1970."""
    thresholds: tuple[dict[int, int], ...] = ()
    """By partition, the end offset at each expansion, by layout epoch. `to_json` does not save it."""
    partitioner: str | None = None
    """The partitioner that is recorded with the log. `to_json` does not save it."""

    @property
    def start_offsets(self) -> tuple[int, ...]:
        return tuple(each.start_offset for each in self.bounds)

    @property
    def expected_offsets(self) -> str:
        """Return the option ``expectedOffsets`` for a write that expects no records after these bounds."""
        return json.dumps({str(partition): each.end_offset for partition, each in enumerate(self.bounds)})

    def to_json(self, **saved: str | int) -> str:
        """Return one line of JSON with the bounds, and ``saved`` as further fields."""
        ends = json.loads(self.expected_offsets)
        plain = {name: getattr(self, name) for name in ("topic", "log_id", "layout_epoch", "pinned_at_ms")}
        return json.dumps({**plain, "start_offsets": self.start_offsets, "expected_offsets": ends, **saved})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse the result of `to_json`. Raises KeyError, TypeError or ValueError for other text."""
        result = json.loads(text)
        starts, ends = result["start_offsets"], result["expected_offsets"]
        bounds = tuple(Bounds(start, ends[str(partition)]) for partition, start in enumerate(starts))
        return cls(result["topic"], result["log_id"], result["layout_epoch"], bounds, result["pinned_at_ms"])

    def rows(self) -> list[tuple[str, int, int, int, int, str, dict[int, int], str | None]]:
        """Return a row per partition, in the columns of the view ``offsets``."""
        epoch, of_all = self.layout_epoch, self.partitioner
        return [
            (self.topic, partition, each.start_offset, each.end_offset, epoch, self.log_id, thresholds, of_all)
            for partition, (each, thresholds) in enumerate(zip(self.bounds, self.thresholds, strict=True))
        ]

    def layout_starts(self) -> tuple[tuple[int, ...], ...]:
        """Return, by partition, the offsets at which its records of the second layout begin, of the third, and so on.

        The offset is 0 in partitions that were added with the layout or later.
        """
        epochs = sorted({epoch for each in self.thresholds for epoch in each})
        return tuple(tuple(each.get(epoch, 0) for epoch in epochs) for each in self.thresholds)

    def range_options(self, start_offsets: Sequence[int] | None = None) -> dict[str, str]:
        """Return the options of a read of this log, from these offsets, if any, up to the pinned ends."""
        ends = [each.end_offset for each in self.bounds]
        limits = {
            name: json.dumps({self.topic: {str(partition): offset for partition, offset in enumerate(offsets)}})
            for name, offsets in (("startingOffsets", start_offsets), ("endingOffsets", ends))
            if offsets is not None
        }
        # `assign` excludes partitions that are added later. `logId` detects another log of the same name.
        return {**limits, "logId": self.log_id, "assign": json.dumps({self.topic: [*range(len(self.bounds))]})}


class PinnedLog:
    """A log at one moment, with the session and the options to read it."""

    def __init__(self, spark: SparkSession, path_or_options: str | Mapping[str, str | float | None]) -> None:
        """Pin the present end offsets.

        The session reads them, because on Spark Connect only the server may be able to reach the log.

        Raises OptionError and the errors of reading the log, such as StorageError if a transaction stays open for
        ``openTransactionWaitMs``.
        """
        self._options = as_text(path_or_options)
        _refuse_parts(self._options)
        request = parse_read(self._options)
        self.spec = request.selection.only()
        self._columns = read_schema(request.view, include_headers=request.include_headers)
        self._spark = spark
        self.at = pin(spark, self._options)

    def read(
        self, start_offsets: Sequence[int], schema: StructType | None = None, *, newest: bool = False
    ) -> DataFrame:
        """Return the records from these offsets up to the pinned ends.

        If the log was recreated, or ends before the pinned ends, TruncatedError is raised when the DataFrame is used.
        Without a schema, read all columns. With ``newest``, read at least the newest record of each key in each
        partition, and possibly others.
        """
        reader = self._spark.read.format("conditional-log").options(**without_topic(self._options))
        if newest:
            reader = reader.option("view", VIEW_NEWEST)
        # With a schema, Spark starts no process that parses the options only to return one.
        return reader.options(**self.at.range_options(start_offsets)).schema(schema or self._columns).load()


def without_topic(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options without those that name a topic, which the option ``assign`` replaces."""
    return {name: value for name, value in options.items() if name.lower() not in ("topic", "subscribe")}


def _refuse_parts(options: Mapping[str, str]) -> None:
    for name in options:
        if name.lower() in ("view", "assign", "logid") or name.lower().startswith(("starting", "ending")):
            raise OptionError(
                f"option {name} chooses a part of the log, and a bootstrap is of all of it, up to the end that it "
                f"finds. Leave it out, or read with spark.read.format('conditional-log')."
            )


def pin(spark: SparkSession, options: Mapping[str, str]) -> PinnedBounds:
    """Return the present bounds of the log that these options of a read select. Raises as `PinnedLog`."""
    now_ms = clock.now_ms()
    view = spark.read.format("conditional-log").options(**options).option("view", "offsets").schema(OFFSETS)
    rows = sorted(collected(view, spark), key=lambda row: (row.topic, row.partition))
    first = rows[0]
    bounds = tuple(Bounds(row.start_offset, row.end_offset) for row in rows)
    thresholds = tuple(row.thresholds for row in rows)
    return PinnedBounds(first.topic, first.log_id, first.layout_epoch, bounds, now_ms, thresholds, first.partitioner)
