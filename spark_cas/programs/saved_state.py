"""Saved states of a log: the rows and the offsets up to which they were read, always stored together.

In a folder, the rows have a unique name, and a file with that name and the offsets is written last. Rows of an
interrupted run are therefore not part of any state. In a catalog, the offsets are a table property that is set last.
"""

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import Observation
from pyspark.sql import functions as sf

from spark_cas.core.errors import TrimmedError, TruncatedError
from spark_cas.log import clock
from spark_cas.log.open import open_log
from spark_cas.programs.errors import UsageError
from spark_cas.spark.reading.bootstrap import STATE, PinnedBounds, PinnedLog, latest, state_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FORMATS = ("parquet", "csv", "table")

_PROPERTY = "spark_cas.offsets"
_OFFSETS = "offsets"

# Keep line breaks, quotes and spaces in values, and do not parse comments.
_CSV = {
    "header": "true",
    "quoteAll": "true",
    "escape": '"',
    "multiLine": "true",
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
    "encoding": "UTF-8",
}
# Fail on unreadable rows. Otherwise Spark returns nulls, and a refresh would drop those keys.
_READ_CSV = {**_CSV, "mode": "FAILFAST"}
_CSV_COLUMNS = "key STRING, value STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"


@dataclass(frozen=True, slots=True)
class SavedState:
    """A saved state."""

    at: PinnedBounds
    """The offsets up to which the state was read."""
    state: "DataFrame"
    """The rows, with the columns of `spark_cas.spark.reading.bootstrap.STATE`."""


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
    """Save the state of a log together with its offsets.

    Args:
        log_options: the options of the read
        kind: one of `FORMATS`
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
    _require_all_tombstones(log, oldest)
    state = state_of(log) if before is None else refreshed(spark, log, before)
    counted = Observation("saved state")
    state = state.observe(counted, sf.count(sf.lit(1)).alias("rows"))
    rows = target.write_rows(state)
    # Check again after everything was read.
    _require_same_log(log)
    _require_all_tombstones(log, oldest)
    target.write_offsets(log.at, rows)
    return Saved(log.at, rows, int(counted.get["rows"]))


def refreshed(spark: "SparkSession", log: PinnedLog, before: SavedState) -> "DataFrame":
    """Return the state of a log at its pinned offsets, from an earlier state and the newer records."""
    read_to = [each.end_offset for each in before.at.bounds]
    if before.at.log_id != log.at.log_id or any(
        end > each.end_offset for end, each in zip(read_to, log.at.bounds, strict=False)
    ):
        raise TruncatedError(
            f"log {log.at.topic} is not the log of the saved state, or it lost records since then: it was recreated, "
            f"or it ends before the offsets of the state. Nothing was saved. Find the cause, then bootstrap without "
            f"--since."
        )
    # Read partitions that were added since then from their start.
    start_offsets = [*read_to, *log.at.start_offsets[len(read_to) :]]
    starts = spark.createDataFrame([*enumerate(log.at.start_offsets)], "partition INT, start_offset BIGINT")
    # Drop rows that were trimmed since then. A new bootstrap would not contain them either.
    kept = before.state.join(sf.broadcast(starts), "partition").where("offset >= start_offset").select(*STATE.names)
    return latest(kept.unionByName(log.read(start_offsets, STATE, newest=True).select(*STATE.names)), log.at)


def _require_same_log(pinned: PinnedLog) -> None:
    """Check that the log is still the one that was pinned. Raises TruncatedError if it was recreated."""
    with open_log(pinned.spec) as log:
        if log.layout().log_id != pinned.at.log_id:
            raise TruncatedError(
                f"log {pinned.at.topic} was deleted and recreated during the read. Nothing was saved. Run again for "
                f"the state of the new log."
            )


def _require_all_tombstones(pinned: PinnedLog, oldest: PinnedBounds) -> None:
    """Check that the log still has the tombstones of all keys that existed at ``oldest`` or later.

    Compaction keeps a tombstone for this time after it removed the older records of the key. A reader of such a
    record therefore finds the tombstone within this time. Raises TrimmedError if a tombstone may have been removed.
    """
    with open_log(pinned.spec) as log:
        kept_ms = log.tombstones_kept_ms()
    if kept_ms == 0:
        raise TrimmedError(
            f"topic {oldest.topic} has delete.retention.ms=0, or this user may not read its settings: the state may "
            f"contain deleted keys. Nothing was saved. Raise delete.retention.ms, or allow the user to read it "
            f"(kafka-acls.sh --add --allow-principal User:<user> --operation DescribeConfigs --topic "
            f"{oldest.topic})."
        )
    age_ms = clock.now_ms() - oldest.pinned_at_ms
    # Use half of the time, because the clocks of brokers may differ.
    if kept_ms is not None and age_ms >= kept_ms // 2:
        raise TrimmedError(
            f"topic {oldest.topic} is compacted and keeps tombstones for {kept_ms / 1000:.0f} s, but the oldest "
            f"offsets of the state are {age_ms / 1000:.0f} s old: compaction may have removed tombstones since then. "
            f"Nothing was saved. Run without --since, or raise delete.retention.ms: a run must finish within half of "
            f"it."
        )


def place_of(spark: "SparkSession", kind: str, name: str) -> "_Folder | _Table":
    """Return the location of a saved state: a folder, or a table of the catalog. It may be unused."""
    return _Table(spark, name) if kind == "table" else _Folder(spark, kind, name.rstrip("/"))


class _Folder:
    def __init__(self, spark: "SparkSession", kind: str, path: str) -> None:
        self._spark = spark
        self._kind = kind
        self._path = path

    def require_free(self) -> None:
        """Check that the location is unused. Raises UsageError if it is not."""
        if self._lines() is not None:
            raise UsageError(
                f"{self._path} already has a folder {_OFFSETS}: a saved state, the output of an interrupted run, or "
                f"that of another program, such as the checkpoint of a stream. Nothing was saved. Name a new folder."
            )

    def write_rows(self, state: "DataFrame") -> str:
        """Write the rows of a state and return their name. The state is saved only after `write_offsets`."""
        name = f"state-{uuid.uuid4().hex[:12]}"
        path = f"{self._path}/{name}"
        if self._kind == "csv":
            _as_text(state).write.options(**_CSV).csv(path)
        else:
            state.write.parquet(path)
        return name

    def write_offsets(self, at: PinnedBounds, rows: str) -> None:
        """Save the state whose rows have this name. From now on `load` finds it."""
        text = at.to_json(state=rows, format=self._kind, rows=self._rows(rows).count())
        line = self._spark.createDataFrame([(text,)], "line STRING")
        try:
            line.coalesce(1).write.mode("errorifexists").text(f"{self._path}/{_OFFSETS}")
        except AnalysisException as error:
            if "PATH_ALREADY_EXISTS" not in str(error):
                raise
            raise UsageError(
                f"another program created the folder {_OFFSETS} in {self._path} during the write. Nothing was saved. "
                f"Name a new folder."
            ) from None

    def load(self) -> SavedState:
        """Return the saved state. Raises UsageError if there is none, or if it is incomplete or in another format."""
        lines = self._lines()
        if not lines or len(lines) > 1:
            raise UsageError(
                f"{self._path} has no saved state: its folder {_OFFSETS} is missing, or does not have exactly one "
                f"line. Name a folder of a complete run of bootstrap_state."
            )
        (line,) = lines
        return _saved_state(line, self._kind, self._rows)

    def _rows(self, name: str) -> "DataFrame":
        path = f"{self._path}/{name}"
        if self._kind != "csv":
            return self._spark.read.schema(STATE).parquet(path)
        texts = self._spark.read.schema(_CSV_COLUMNS).options(**_READ_CSV).csv(path)
        # A state has no nulls. Spark reads an empty CSV text as null.
        values = (sf.coalesce(column, sf.lit("")).cast("binary").alias(column) for column in ("key", "value"))
        return texts.select(*values, *STATE.names[2:])

    def _lines(self) -> set[str] | None:
        """Return up to three different lines of the offsets folder; None if there is no folder."""
        # Pass the path twice: Spark logs a stack trace if a single path is missing, but not for several paths.
        paths = [f"{self._path}/{_OFFSETS}"] * 2
        try:
            # Read recursively: the folder may belong to another program, and Spark would infer partitions from it.
            lines = self._spark.read.option("recursiveFileLookup", "true").text(paths)
            return {row.value for row in lines.limit(3).collect()}
        except AnalysisException as error:
            if "PATH_NOT_FOUND" in str(error):
                return None
            raise


class _Table:
    """A table of the catalog, with the methods of `_Folder`."""

    def __init__(self, spark: "SparkSession", name: str) -> None:
        self._spark = spark
        self._name = name

    def require_free(self) -> None:
        if self._spark.catalog.tableExists(self._name):
            raise UsageError(
                f"the table {self._name} already exists: a saved state, or the output of an interrupted run. Nothing "
                f"was saved. Name a new table, or drop this one."
            )

    def write_rows(self, state: "DataFrame") -> str:
        state.write.saveAsTable(self._name)
        return self._name

    def write_offsets(self, at: PinnedBounds, rows: str) -> None:
        offsets = at.to_json(state=rows, format="table", rows=self._spark.table(self._name).count())
        change = f"ALTER TABLE IDENTIFIER(:name) SET TBLPROPERTIES ('{_PROPERTY}' = '{offsets}')"
        self._spark.sql(change, {"name": self._name})

    def load(self) -> SavedState:
        if not self._spark.catalog.tableExists(self._name):
            raise UsageError(f"there is no table {self._name}. Name the table of a complete run of bootstrap_state.")
        rows = self._spark.sql("SHOW TBLPROPERTIES IDENTIFIER(:name)", {"name": self._name}).collect()
        offsets = {row.key: row.value for row in rows}.get(_PROPERTY)
        if offsets is None:
            raise UsageError(
                f"the table {self._name} has no property {_PROPERTY}, which is set last. Name the table of a "
                f"complete run of bootstrap_state."
            )
        return _saved_state(offsets, "table", lambda _: self._spark.table(self._name))


def _saved_state(text: str, kind: str, rows_of: "Callable[[str], DataFrame]") -> SavedState:
    """Return the state with these offsets, whose rows ``rows_of`` returns by their name.

    Raises UsageError if its format is not ``kind``, or if it does not have the saved number of rows. Older states
    have no number.
    """
    try:
        at, saved = PinnedBounds.from_json(text), json.loads(text)
        name, saved_kind, count = saved["state"], saved["format"], saved.get("rows")
    except (KeyError, TypeError, ValueError):
        raise UsageError("the offsets of the saved state cannot be read. Bootstrap again without --since.") from None
    if saved_kind != kind:
        raise UsageError(
            f"the saved state of log {at.topic} is in format {saved_kind}, and the requested format is {kind}. Add "
            f"--format {saved_kind}, or bootstrap without --since."
        )
    state = rows_of(name)
    if count is not None and (actual := state.count()) != count:
        raise UsageError(
            f"{name} has {actual} rows, and the state was saved with {count}: a file was removed or added. Nothing "
            f"was saved. Restore it, or bootstrap without --since."
        )
    return SavedState(at, state)


def _as_text(state: "DataFrame") -> "DataFrame":
    """Return the state with key and value as text.

    The write fails with Spark's error of raise_error if a value is not UTF-8.
    """

    def text_of(name: str) -> "Column":
        message = f"column {name} has bytes that are not UTF-8, and CSV stores only text. Save the state as parquet."
        text = sf.col(name).cast("string")
        return sf.when(sf.is_valid_utf8(text), text).otherwise(sf.raise_error(sf.lit(message))).alias(name)

    return state.select(text_of("key"), text_of("value"), *STATE.names[2:])
