"""Save the state of a log, in full or as an update of an earlier state."""

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
    """Result of `save_state`."""

    at: PinnedBounds
    name: str
    """The table of the rows, or their folder below the location."""
    rows: int


def save_state(
    spark: "SparkSession", log_options: Mapping[str, str], kind: str, place: str, since: str | None = None
) -> Saved:
    """Save the state of a log together with its offsets (see `saved_state`).

    Args:
        spark: the session
        log_options: the options of the read
        kind: one of `spark_cas.programs.saved_state.FORMATS`
        place: a new folder or table
        since: an earlier state in the same format. Only newer records are read; the result is the same.

    Raises:
        UsageError: if ``place`` is in use or ``since`` contains no state
        TruncatedError: if the log was recreated or truncated after ``since``, or recreated during the read
        TrimmedError: if records after ``since``, or tombstones, may have been removed before they were read
        ConditionalLogError: if `spark_cas.bootstrap` raises it
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
    # Check again after everything was read.
    _require_same_log(log_options, log.at)
    _require_all_tombstones(log_options, oldest)
    target.write_offsets(log.at, rows)
    return Saved(log.at, rows, int(counted.get["rows"]))


def refreshed(spark: "SparkSession", log: PinnedLog, before: SavedState) -> "DataFrame":
    """Return the state of a log at its pinned offsets, from an earlier state and the newer records."""
    seen = [each.end_offset for each in before.at.bounds]
    if before.at.log_id != log.at.log_id or any(
        end > each.end_offset for end, each in zip(seen, log.at.bounds, strict=False)
    ):
        raise TruncatedError(
            f"log {log.at.topic} is not the one that the saved state was taken of, or it lost records since then: it "
            f"was recreated, or ends before what the state has seen. Find out why, then bootstrap without --since."
        )
    # Read partitions that were added since then from their start.
    start_offsets = [*seen, *log.at.start_offsets[len(seen) :]]
    starts = spark.createDataFrame([*enumerate(log.at.start_offsets)], "partition INT, start_offset BIGINT")
    # Drop rows that were trimmed since then. A new bootstrap would not contain them either.
    kept = before.state.join(sf.broadcast(starts), "partition").where("offset >= start_offset").select(*STATE.names)
    return latest(kept.unionByName(log.read(start_offsets, STATE, newest=True).select(*STATE.names)), log.at)


def _require_same_log(log_options: Mapping[str, str], at: PinnedBounds) -> None:
    """Check that the log is still the one that was pinned. Raises TruncatedError if it was recreated."""
    with open_log(parse_read(log_options).selection.only()) as log:
        if log.layout().log_id != at.log_id:
            raise TruncatedError(
                f"log {at.topic} was deleted and recreated while its state was read. Nothing was saved. Run again "
                f"for the state of the new log."
            )


def _require_all_tombstones(log_options: Mapping[str, str], oldest: PinnedBounds) -> None:
    """Check that the log still has the tombstones of all keys that existed at ``oldest`` or later.

    Compaction keeps a tombstone for this time after it removed the older records of the key. A reader of such a
    record therefore finds the tombstone within this time.

    Raises:
        TrimmedError: if a tombstone may have been removed
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
    # Use half of the time, because the clocks of brokers may differ.
    if kept_ms is not None and age_ms >= kept_ms // 2:
        raise TrimmedError(
            f"topic {oldest.topic} is compacted and keeps deletions for {kept_ms / 1000:.0f} s, and the oldest that "
            f"the state is made from was found {age_ms / 1000:.0f} s ago: keys that were deleted since then may have "
            f"left no trace. Nothing was saved. Finish within half of delete.retention.ms, without --since or after "
            f"raising it."
        )
