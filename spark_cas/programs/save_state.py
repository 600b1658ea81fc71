"""Saving the state of a log, all of it or what changed since an earlier one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as sf

from spark_cas.core.errors import TrimmedError, TruncatedError
from spark_cas.log import clock
from spark_cas.log.open import open_log
from spark_cas.options.parse import parse_read
from spark_cas.programs.saved_state import SavedState, place_of
from spark_cas.spark.reading.bootstrap import STATE, latest, state_of
from spark_cas.spark.reading.pinned_bounds import PinnedBounds, PinnedLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Saved:
    """What was saved."""

    at: PinnedBounds
    name: str
    """The folder, below the place, or the table that the rows are in."""
    rows: int


def save_state(
    spark: "SparkSession", log_options: Mapping[str, str], kind: str, place: str, since: str | None = None
) -> Saved:
    """Save the state of a log and the offsets that it lies at, as one thing: see `saved_state`.

    ``since`` names a state that was saved in the same format: then only what was appended after it is read, and the
    result is the same.

    Raises what `spark_cas.bootstrap` raises; UsageError when ``place`` is taken or ``since`` holds no state;
    TruncatedError when the log is not, or no longer, the one that ``since`` was taken of, or that the ends were asked
    of; TrimmedError when what came after ``since``, or a deletion, may not all have been there any more when it was
    read.
    """
    target = place_of(spark, kind, place)
    target.require_free()
    before = None if since is None else place_of(spark, kind, since).load()
    log = PinnedLog(spark, log_options)
    oldest = log.at if before is None else before.at
    _require_all_tombstones(log_options, oldest)
    state = state_of(log) if before is None else refreshed(spark, log, before)
    counted = Observation("saved state")
    state = state.observe(counted, sf.count(sf.lit(1)).alias("rows"))
    rows = target.write_rows(state)
    # Again: only now everything has been read.
    _require_same_log(log_options, log.at)
    _require_all_tombstones(log_options, oldest)
    target.write_offsets(log.at, rows)
    return Saved(log.at, rows, int(counted.get["rows"]))


def refreshed(spark: "SparkSession", log: PinnedLog, before: SavedState) -> "DataFrame":
    """The state of a log at its bound, from an earlier one and from what was appended since."""
    seen = [each.end_offset for each in before.at.bounds]
    if before.at.log_id != log.at.log_id or any(
        end > each.end_offset for end, each in zip(seen, log.at.bounds, strict=False)
    ):
        raise TruncatedError(
            f"log {log.at.topic} is not the one that the saved state was taken of, or it lost records since then: it "
            f"was recreated, or ends before what the state has seen. Find out why, then bootstrap without --since."
        )
    # Partitions that are new since then are read from their start.
    start_offsets = [*seen, *log.at.start_offsets[len(seen) :]]
    starts = spark.createDataFrame([*enumerate(log.at.start_offsets)], "partition INT, start_offset BIGINT")
    # What was trimmed since then is in no bootstrap of today either.
    kept = before.state.join(sf.broadcast(starts), "partition").where("offset >= start_offset").select(*STATE.names)
    return latest(kept.unionByName(log.read(start_offsets, STATE, newest=True).select(*STATE.names)), log.at)


def _require_same_log(log_options: Mapping[str, str], at: PinnedBounds) -> None:
    """TruncatedError when the log was recreated since it was pinned, maybe in the middle of what a task read."""
    with open_log(parse_read(log_options).selection.only()) as log:
        if log.layout().log_id != at.log_id:
            raise TruncatedError(
                f"log {at.topic} was deleted and recreated while its state was read. Nothing was saved. Run again "
                f"for the state of the new log."
            )


def _require_all_tombstones(log_options: Mapping[str, str], oldest: PinnedBounds) -> None:
    """TrimmedError unless each deletion of a key that was there then, or came since, is still to be read.

    Compaction keeps a deletion for as long after it took away what was deleted. So whoever read an older value then,
    or later, finds the deletion for as long.
    """
    with open_log(parse_read(log_options).selection.only()) as log:
        kept_ms = log.tombstones_kept_ms()
    if kept_ms == 0:
        raise TrimmedError(
            f"topic {oldest.topic} keeps deletions for no time at all, or its settings may not be seen by this user: "
            f"keys that were deleted could stay in the state. The ACL DescribeConfigs on the topic shows them "
            f"(kafka-acls.sh --add --allow-principal User:<user> --operation DescribeConfigs --topic "
            f"{oldest.topic}); if it is compacted with delete.retention.ms=0, raise that."
        )
    age_ms = clock.now_ms() - oldest.pinned_at_ms
    # Half of it, for the clocks of brokers differ.
    if kept_ms is not None and age_ms >= kept_ms // 2:
        raise TrimmedError(
            f"topic {oldest.topic} is compacted and keeps deletions for {kept_ms / 1000:.0f} s, and the oldest that "
            f"the state is made from was found {age_ms / 1000:.0f} s ago: keys that were deleted since then may have "
            f"left no trace. Nothing was saved. Finish within half of delete.retention.ms, without --since or after "
            f"raising it."
        )
