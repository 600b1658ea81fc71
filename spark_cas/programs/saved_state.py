"""Saved states of a log: the rows and the offsets up to which they were read, always stored together.

In a folder, the rows have a unique name, and a file with that name and the offsets is written last. Rows of an
interrupted run are therefore not part of any state. In a catalog, the offsets are a table property that is set last.
"""

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark.errors import AnalysisException
from pyspark.sql import functions as sf

from spark_cas.programs.errors import UsageError
from spark_cas.spark.reading.bootstrap import STATE
from spark_cas.spark.reading.pinned_bounds import PinnedBounds

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


class Place(Protocol):
    """Location of a saved state."""

    def require_free(self) -> None:
        """Check that the location is unused. Raises UsageError if it is not."""
        ...

    def write_rows(self, state: "DataFrame") -> str:
        """Write the rows of a state and return their name. The state is saved only after `write_offsets`."""
        ...

    def write_offsets(self, at: PinnedBounds, rows: str) -> None:
        """Save the state whose rows have this name. From now on `load` finds it."""
        ...

    def load(self) -> SavedState:
        """Return the saved state. Raises UsageError if there is none, or if it is incomplete or in another format."""
        ...


def place_of(spark: "SparkSession", kind: str, name: str) -> Place:
    """Return the location for a kind and a name.

    Args:
        spark: the session
        kind: one of `FORMATS`
        name: a folder, or a table of the catalog
    """
    return _Table(spark, name) if kind == "table" else _Folder(spark, kind, name.rstrip("/"))


class _Folder:
    def __init__(self, spark: "SparkSession", kind: str, path: str) -> None:
        self._spark = spark
        self._kind = kind
        self._path = path

    def require_free(self) -> None:
        if self._lines() is not None:
            raise UsageError(
                f"{self._path} has a folder {_OFFSETS} already: a saved state, what a run that was stopped left, or "
                f"something of another program, such as the checkpoint of a stream. Name a new folder."
            )

    def write_rows(self, state: "DataFrame") -> str:
        name = f"state-{uuid.uuid4().hex[:12]}"
        where = f"{self._path}/{name}"
        if self._kind == "csv":
            _as_text(state).write.options(**_CSV).csv(where)
        else:
            state.write.parquet(where)
        return name

    def write_offsets(self, at: PinnedBounds, rows: str) -> None:
        line = self._spark.createDataFrame([(_written_offsets(at, rows, self._kind),)], "line STRING")
        try:
            line.coalesce(1).write.mode("errorifexists").text(f"{self._path}/{_OFFSETS}")
        except AnalysisException as error:
            if "PATH_ALREADY_EXISTS" not in str(error):
                raise
            raise UsageError(
                f"while the rows were written, somebody else made a folder {_OFFSETS} in {self._path}. Nothing was "
                f"saved. Name a new folder."
            ) from None

    def load(self) -> SavedState:
        lines = self._lines()
        if not lines:
            raise UsageError(
                f"no state is saved in {self._path}: there are no offsets, which are written last. Name a folder "
                f"that bootstrap_state wrote to the end."
            )
        if len(lines) > 1:
            raise UsageError(
                f"no state is saved in {self._path}: the offsets of one are a single line, and {_OFFSETS} holds "
                f"several. Name a folder that bootstrap_state wrote."
            )
        (found,) = lines
        at, name = _read_offsets(found, self._kind)
        where = f"{self._path}/{name}"
        if self._kind == "csv":
            return SavedState(at, _from_text(self._spark.read.schema(_CSV_COLUMNS).options(**_READ_CSV).csv(where)))
        return SavedState(at, self._spark.read.schema(STATE).parquet(where))

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
    def __init__(self, spark: "SparkSession", name: str) -> None:
        self._spark = spark
        self._name = name

    def require_free(self) -> None:
        if self._spark.catalog.tableExists(self._name):
            raise UsageError(
                f"the table {self._name} is there already: a saved state, or what a run that was stopped left. Name "
                f"a new table, or drop this one."
            )

    def write_rows(self, state: "DataFrame") -> str:
        state.write.saveAsTable(self._name)
        return self._name

    def write_offsets(self, at: PinnedBounds, rows: str) -> None:
        offsets = _written_offsets(at, rows, "table")
        change = f"ALTER TABLE IDENTIFIER(:name) SET TBLPROPERTIES ('{_PROPERTY}' = '{offsets}')"
        self._spark.sql(change, {"name": self._name})

    def load(self) -> SavedState:
        if not self._spark.catalog.tableExists(self._name):
            raise UsageError(f"there is no table {self._name}. Name one that bootstrap_state wrote to the end.")
        rows = self._spark.sql("SHOW TBLPROPERTIES IDENTIFIER(:name)", {"name": self._name}).collect()
        found = {row.key: row.value for row in rows}.get(_PROPERTY)
        if found is None:
            raise UsageError(
                f"the table {self._name} has no property {_PROPERTY}, which is set last: it is no state that was "
                f"saved to the end. Name another table."
            )
        return SavedState(_read_offsets(found, "table")[0], self._spark.table(self._name))


def _written_offsets(at: PinnedBounds, rows: str, kind: str) -> str:
    return at.to_json(state=rows, format=kind)


def _read_offsets(text: str, kind: str) -> tuple[PinnedBounds, str]:
    """Parse the offsets of a state and the name of its rows. Raises UsageError if the format is not ``kind``."""
    try:
        at, saved = PinnedBounds.from_json(text), json.loads(text)
        rows, found = saved["state"], saved["format"]
    except (KeyError, TypeError, ValueError):
        raise UsageError("the offsets of the saved state cannot be read. Bootstrap again without --since.") from None
    if found != kind:
        raise UsageError(
            f"the saved state of log {at.topic} is in format {found}, and format {kind} was asked for. Give "
            f"--format {found}, or bootstrap without --since."
        )
    return at, rows


def _as_text(state: "DataFrame") -> "DataFrame":
    """Return the state with key and value as text.

    The write fails with Spark's error of raise_error if a value is not UTF-8.
    """

    def text_of(name: str) -> "Column":
        refusal = f"column {name} has bytes that are no UTF-8 text, which CSV cannot hold. Save the state as parquet."
        text = sf.col(name).cast("string")
        return sf.when(sf.is_valid_utf8(text), text).otherwise(sf.raise_error(sf.lit(refusal))).alias(name)

    return state.select(text_of("key"), text_of("value"), *STATE.names[2:])


def _from_text(state: "DataFrame") -> "DataFrame":
    # A state has no nulls. Spark reads an empty CSV text as null.
    bytes_of = (sf.coalesce(name, sf.lit("")).cast("binary").alias(name) for name in ("key", "value"))
    return state.select(*bytes_of, *STATE.names[2:])
