"""One set of end offsets, found behind the barrier of each partition; everything is read against it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_cas.core.errors import OptionError
from spark_cas.core.offsets import Bounds
from spark_cas.log import clock
from spark_cas.options.option import VIEW_NEWEST
from spark_cas.options.parse import parse_read
from spark_cas.spark.setup import collected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class PinnedBounds:
    """What the partitions of one log kept at one moment: every append acknowledged before it lies below the ends."""

    topic: str
    log_id: str
    layout_epoch: int
    bounds: tuple[Bounds, ...]
    """By partition."""
    pinned_at_ms: int
    """When the bounds were asked for, milliseconds since 1970."""
    thresholds: tuple[dict[int, int], ...] = ()
    """By partition, and by layout epoch: where it ended when partitions were added. Not part of what is saved."""
    partitioner: str | None = None
    """The partitioner that was recorded with the log then. Not saved either."""

    @property
    def start_offsets(self) -> tuple[int, ...]:
        """From where each partition is kept."""
        return tuple(each.start_offset for each in self.bounds)

    @property
    def expected_offsets(self) -> str:
        """What a write that has seen everything up to here gives as the option expectedOffsets."""
        return json.dumps({str(partition): each.end_offset for partition, each in enumerate(self.bounds)})

    def to_json(self, **saved: str) -> str:
        """One line of JSON, with what else is to be known of a state that is saved at these offsets."""
        ends = json.loads(self.expected_offsets)
        plain = {name: getattr(self, name) for name in ("topic", "log_id", "layout_epoch", "pinned_at_ms")}
        return json.dumps({**plain, "start_offsets": self.start_offsets, "expected_offsets": ends, **saved})

    @classmethod
    def from_json(cls, text: str) -> "PinnedBounds":
        """Read what `to_json` wrote; KeyError, TypeError or ValueError when it is none."""
        found = json.loads(text)
        starts, ends = found["start_offsets"], found["expected_offsets"]
        bounds = tuple(Bounds(start, ends[str(partition)]) for partition, start in enumerate(starts))
        return cls(found["topic"], found["log_id"], found["layout_epoch"], bounds, found["pinned_at_ms"])

    def rows(self) -> "list[tuple[str, int, int, int, int, str, dict[int, int], str | None]]":
        """Return a row per partition, in the columns of the view ``offsets``."""
        epoch, of_all = self.layout_epoch, self.partitioner
        return [
            (self.topic, partition, each.start_offset, each.end_offset, epoch, self.log_id, thresholds, of_all)
            for partition, (each, thresholds) in enumerate(zip(self.bounds, self.thresholds, strict=True))
        ]

    def layout_starts(self) -> tuple[tuple[int, ...], ...]:
        """By partition: where the second layout that it could be written under begins in it, the third and so on."""
        epochs = sorted({epoch for each in self.thresholds for epoch in each})
        return tuple(tuple(each.get(epoch, 0) for epoch in epochs) for each in self.thresholds)

    def range_options(self, start_offsets: Sequence[int]) -> dict[str, str]:
        """The options of a read of this very log, from these offsets up to the pinned ends."""
        ends = [each.end_offset for each in self.bounds]
        limits = {
            name: json.dumps({self.topic: {str(partition): offset for partition, offset in enumerate(offsets)}})
            for name, offsets in (("startingOffsets", start_offsets), ("endingOffsets", ends))
        }
        # By number: partitions that were added since then have no part in it.
        # By its id: another log may have its name by the time it is read.
        return {**limits, "logId": self.log_id, "assign": json.dumps({self.topic: [*range(len(self.bounds))]})}


class PinnedLog:
    """A log as it was at one moment, and the session and options to read it with."""

    def __init__(self, spark: "SparkSession", path_or_options: str | Mapping[str, str | float]) -> None:
        """Pin the ends now, through the session: on Spark Connect only its server may see the log.

        Raises OptionError; LogNotFoundError; StorageError when a transaction stays open for claimTimeoutMs; whatever
        else reading the log raises.
        """
        given = {"path": path_or_options} if isinstance(path_or_options, str) else dict(path_or_options)
        self._options = {name: str(value) for name, value in given.items()}
        _check(self._options)
        self._spark = spark
        self.at = _pin(spark, self._options)

    def read(
        self, start_offsets: Sequence[int], schema: "StructType | None" = None, *, newest: bool = False
    ) -> "DataFrame":
        """The records from these offsets up to the pinned ends, in all columns or in those of ``schema``.

        With ``newest``, of each key of a partition the newest one and maybe others.

        When it is used, it ends in TruncatedError if by then the log is another one, or ends before that.
        """
        reader = self._spark.read.format("conditional-log")
        if schema is not None:
            reader = reader.schema(schema)
        # Among brokers the option assign stands in place of those that name a topic.
        where = {name: value for name, value in self._options.items() if name.lower() not in ("topic", "subscribe")}
        if newest:
            reader = reader.option("view", VIEW_NEWEST)
        return reader.options(**where, **self.at.range_options(start_offsets)).load()


def _check(options: Mapping[str, str]) -> None:
    for name in options:
        if name.lower() in ("view", "assign", "logid") or name.lower().startswith(("starting", "ending")):
            raise OptionError(
                f"option {name} chooses a part of the log, and a bootstrap is of all of it, up to the end that it "
                f"finds. Leave it out, or read with spark.read.format('conditional-log')."
            )
    parse_read(options).selection.only()


def _pin(spark: "SparkSession", options: Mapping[str, str]) -> PinnedBounds:
    now_ms = clock.now_ms()
    view = spark.read.format("conditional-log").options(**options).option("view", "offsets")
    rows = sorted(collected(view, spark), key=lambda row: (row.topic, row.partition))
    first = rows[0]
    bounds = tuple(Bounds(row.start_offset, row.end_offset) for row in rows)
    thresholds = tuple(row.thresholds for row in rows)
    return PinnedBounds(first.topic, first.log_id, first.layout_epoch, bounds, now_ms, thresholds, first.partitioner)
