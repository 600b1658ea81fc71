"""`verify_log`: compare a log with a frame row by row, and list the first differences."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.window import Window

from spark_cas.core.errors import SchemaError
from spark_cas.options.parse import as_text, parse_read
from spark_cas.options.read_range import LATEST
from spark_cas.options.request import ReadRequest
from spark_cas.spark.reading.bootstrap import pin, without_topic
from spark_cas.spark.schema import HEADERS
from spark_cas.spark.setup import own_errors
from spark_cas.spark.writing.end_markers import without_end_markers

_COMPARED = ("key", "value", "headers", "timestamp", "partition")


@dataclass(frozen=True, slots=True)
class Difference:
    """A row on which the log and the frame differ."""

    kind: Literal["missing", "unexpected", "out of order"]
    key: bytes | None
    value: bytes | None
    partition: int | None
    """The position of the first such row in the log: partition and `offset`. None if the log has none."""
    offset: int | None
    expected: int
    """The number of such rows in the frame; 1 for a row out of order."""
    actual: int
    """The number of such rows in the log; 1 for a row out of order."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of `verify_log`."""

    expected_rows: int
    actual_rows: int
    expected_digest: str
    """A digest of all rows of the frame in any order: 64 bits, hexadecimal.

    Logs with the same rows have the same digest.
    """
    actual_digest: str
    missing: int
    """The number of rows of the frame that the log lacks. Each duplicate counts."""
    unexpected: int
    """The number of rows of the log that the frame lacks. Each duplicate counts."""
    out_of_order: int | None
    """The number of rows of the log out of order; None without ``order_by``.

    Such a row follows a row of the same key that it should precede. Or it is in another partition than that key's
    first row, if the frame has no column ``partition``.
    """
    differences: tuple[Difference, ...]
    """The first differences of each kind. Missing rows are sorted by key and value, others by position."""

    @property
    def holds(self) -> bool:
        """Return whether the log has exactly the rows of the frame, in the requested order if there is one."""
        return not (self.missing or self.unexpected or self.out_of_order)


@own_errors()
def verify_log(
    df: DataFrame,
    path_or_options: str | Mapping[str, str | float | None],
    *,
    order_by: Sequence[str | Column] = (),
    first: int = 10,
) -> Verification:
    """Compare the records of a log with the rows of ``df``, including the number of duplicates.

    The comparison uses the full values, not hashes. It includes key and value, and those of headers, timestamp (in
    milliseconds) and partition that are columns of the frame. Leave out the timestamp if the log sets it.

    Args:
        df: The expected rows.
        path_or_options: The path of the log, or a dict of the options of a read. The options may select a part of
            the log.
        order_by: The expected order of the records of each key. They must be in one partition, unless the frame has
            the column ``partition``; then the order applies within each partition. Ties may be in any order.
            Identical rows are matched so that they fit the order best. Rows without a key have no order.
        first: The maximum number of listed differences of each kind.

    Returns:
        The number of differences, and the first of them.

    Raises:
        SchemaError: The frame has no column key or value.
        OptionError: The options are invalid, or name several logs.
        ConditionalLogError: The log cannot be read. If ``df`` reads a log too, the error may be of that log.
    """
    df = without_end_markers(df)
    columns = _compared(df)
    options = as_text(path_or_options)
    request = parse_read(options)
    request.selection.only()
    reader = df.sparkSession.read.format("conditional-log").option("includeHeaders", str("headers" in columns))
    log = reader.options(**_pinned(df.sparkSession, options, request)).load()
    counted = _counted(df, log, columns)
    (total,) = counted.agg(*_totals(columns)).collect()
    differences = _uneven(counted, first) if total.missing or total.unexpected else []
    out_of_order = None
    if order_by:
        misplaced = _misplaced(df, log, columns, order_by)
        out_of_order = misplaced.count()
        listed = misplaced.orderBy("place").limit(first).collect() if out_of_order else []
        differences += [_difference("out of order", row) for row in listed]
    return Verification(
        expected_rows=total.expected,
        actual_rows=total.actual,
        expected_digest=f"{int(total.expected_digest) % 2**64:016x}",
        actual_digest=f"{int(total.actual_digest) % 2**64:016x}",
        missing=total.missing,
        unexpected=total.unexpected,
        out_of_order=out_of_order,
        differences=tuple(differences),
    )


def _pinned(spark: SparkSession, options: Mapping[str, str], request: ReadRequest) -> dict[str, str]:
    """Return the options with the present end offsets, unless they have an end.

    Several queries read the log. On Spark 4.0 each of them would have end offsets of its own.
    """
    if request.range.ending.wanted != LATEST:
        return dict(options)
    own = {name.lower(): value for name, value in options.items() if not name.lower().startswith("ending")}
    # The view of the end offsets accepts no part of a log.
    whole = {name: own[name] for name in own if name not in ("assign", "logid") and not name.startswith("starting")}
    (topic,), assigned = request.selection.topics, {at.partition for at in request.selection.assigned}
    if assigned and "path" not in own:
        whole["topic"] = topic
    pinned = {name.lower(): value for name, value in pin(spark, whole).range_options().items()}
    if assigned:
        ends = json.loads(pinned["endingoffsets"])[topic]
        pinned["endingoffsets"] = json.dumps({topic: {each: ends[each] for each in ends if int(each) in assigned}})
    return {**pinned, **without_topic(own)}


def _compared(df: DataFrame) -> list[str]:
    for name in ("key", "value"):
        if name not in df.columns:
            raise SchemaError(
                f"a frame is compared with a log by key and value, and has no column {name}; found: "
                f"{', '.join(df.columns)}. Select it under that name."
            )
    return [name for name in _COMPARED if name in df.columns]


def _normal(columns: Sequence[str]) -> list[Column]:
    """Return the columns to compare: text as bytes, null headers as an empty list, and times in milliseconds."""
    normal = {
        "key": sf.col("key").cast("binary"),
        "value": sf.col("value").cast("binary"),
        "headers": sf.coalesce(sf.col("headers").cast(HEADERS), sf.array().cast(HEADERS)),
        "timestamp": sf.unix_millis("timestamp"),
        "partition": sf.col("partition"),
    }
    return [normal[name].alias(name) for name in columns]


_PLACE = "struct<partition: int, offset: bigint>"


def _counted(df: DataFrame, log: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return each distinct row with its counts in frame and log, and its first position in the log."""
    nowhere, here = sf.lit(None).cast(_PLACE), sf.struct("partition", "offset")
    ours = df.select(
        *_normal(columns), sf.lit(1).alias("expected"), sf.lit(0).alias("actual"), nowhere.alias("place")
    )
    theirs = log.select(
        *_normal(columns), sf.lit(0).alias("expected"), sf.lit(1).alias("actual"), here.alias("place")
    )
    sums = (sf.sum(name).alias(name) for name in ("expected", "actual"))
    return ours.unionAll(theirs).groupBy(*columns).agg(*sums, sf.min("place").alias("place"))


def _totals(columns: Sequence[str]) -> list[Column]:
    expected, actual = sf.col("expected"), sf.col("actual")
    # `xxhash64` skips nulls. The flags show which values of a row, and which values of its headers, are null.
    headers = sf.transform("headers", lambda header: sf.struct(header, header["value"].isNull()))
    hashed = [headers if name == "headers" else sf.col(name) for name in columns]
    one = sf.xxhash64(*hashed, *(sf.isnull(name) for name in columns)).cast("decimal(20)")
    sums = {
        "expected": expected,
        "actual": actual,
        "missing": sf.greatest(expected - actual, sf.lit(0)),
        "unexpected": sf.greatest(actual - expected, sf.lit(0)),
        "expected_digest": one * expected.cast("decimal(10)"),
        "actual_digest": one * actual.cast("decimal(10)"),
    }
    return [sf.coalesce(sf.sum(each), sf.lit(0)).alias(name) for name, each in sums.items()]


def _uneven(counted: DataFrame, first: int) -> list[Difference]:
    unexpected = counted.where("actual > expected").orderBy("place").limit(first).collect()
    missing = counted.where("expected > actual").orderBy("key", "value").limit(first).collect()
    return [
        *(_difference("unexpected", row) for row in unexpected),
        *(_difference("missing", row) for row in missing),
    ]


def _misplaced(df: DataFrame, log: DataFrame, columns: Sequence[str], order_by: Sequence[str | Column]) -> DataFrame:
    """Return the rows of the log that are out of order, or in another partition than the first row of their key.

    Identical rows are matched by position: the first in the log with the first in the order of the frame, and so on.
    If any matching puts all rows in order, this one does.
    """
    keyed = Window.partitionBy(sf.col("key").cast("binary"))
    rank = sf.dense_rank().over(keyed.orderBy(*order_by)).alias("rank")
    alike = Window.partitionBy(*columns)
    ours = df.where("key IS NOT NULL").select(*_normal(columns), rank)
    ours = ours.withColumn("nth", sf.row_number().over(alike.orderBy("rank"))).alias("ours")
    place = sf.struct("partition", "offset").alias("place")
    theirs = log.where("key IS NOT NULL").select(*_normal(columns), place)
    theirs = theirs.withColumn("nth", sf.row_number().over(alike.orderBy("place"))).alias("theirs")
    same = [sf.col(f"ours.{name}").eqNullSafe(sf.col(f"theirs.{name}")) for name in (*columns, "nth")]
    pairs = theirs.join(ours, same).select("theirs.*", "ours.rank")
    # Without a column partition in the frame, all rows of a key must be in one partition.
    together = Window.partitionBy(*(name for name in ("key", "partition") if name in columns))
    before = together.orderBy("place").rowsBetween(Window.unboundedPreceding, -1)
    late = sf.max("rank").over(before) > sf.col("rank")
    apart = sf.min("place.partition").over(together) != sf.col("place.partition")
    ones = [sf.lit(1).alias("expected"), sf.lit(1).alias("actual")]
    misplaced = sf.coalesce(late | apart, apart).alias("misplaced")
    return pairs.select("key", "value", "place", *ones, misplaced).where("misplaced")


def _difference(kind: Literal["missing", "unexpected", "out of order"], row: Row) -> Difference:
    key, value = (None if each is None else bytes(each) for each in (row.key, row.value))
    partition, offset = (None, None) if row.place is None else row.place
    return Difference(kind, key, value, partition, offset, row.expected, row.actual)
