"""`verify_log`: proves that a log holds exactly the rows of a frame, or lists the first differences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as sf
from pyspark.sql.window import Window

from spark_cas.core.errors import SchemaError
from spark_cas.options.parse import parse_read
from spark_cas.spark.schema import HEADERS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

_COMPARED = ("key", "value", "headers", "timestamp", "partition")


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that is not in the log as it is in the frame."""

    kind: Literal["missing", "unexpected", "out of order"]
    key: bytes | None
    value: bytes | None
    partition: int | None
    """Where in the log such a row lies first; None when it has none."""
    offset: int | None
    wanted: int
    """How many such rows the frame has."""
    found: int
    """How many the log has."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What a comparison of a log with a frame came to."""

    wanted_rows: int
    found_rows: int
    wanted_digest: str
    """Of all rows that are wanted, in any order: 64 bits, hexadecimal. Logs with the same rows have the same."""
    found_digest: str
    missing: int
    """Rows of the frame that the log lacks; of rows that are alike each counts."""
    unexpected: int
    """Rows of the log that the frame lacks."""
    out_of_order: int | None
    """Rows that come after one of the same key that they should come before; None when no order was given."""
    differences: tuple[Difference, ...]
    """The first of each kind: unexpected and misplaced ones as they lie in the log, missing ones by key."""

    @property
    def holds(self) -> bool:
        """Whether the log holds exactly these rows, in an order that was asked for."""
        return not (self.missing or self.unexpected or self.out_of_order)


def verify_log(
    df: "DataFrame",
    path_or_options: str | Mapping[str, str | float],
    *,
    order_by: "Sequence[str | Column]" = (),
    first: int = 10,
) -> Verification:
    """Compare what a log holds with the rows of ``df``, each row with its count: nothing is taken on a hash.

    ``path_or_options`` is the log's path, or a dict of the options of a read, which may choose a part of the log.
    Compared are key and value, and those of headers, timestamp (in milliseconds) and partition that the frame has.
    Leave a timestamp out that the log was to fill in.

    With ``order_by`` the records of each key must lie in this order, one after the other in one partition (where the
    frame has the column ``partition``: in each partition). Rows that it leaves tied may lie in either order, and of
    rows that are alike nobody can tell which is which: they are taken as they fit best.

    At most ``first`` differences of each kind are listed. Raises SchemaError for a frame without key or value,
    OptionError for options that name several logs, and Spark's errors, which carry those of the log.
    """
    columns = _compared(df)
    given = {"path": path_or_options} if isinstance(path_or_options, str) else dict(path_or_options)
    options = {name: str(value) for name, value in given.items()}
    parse_read(options).selection.only()
    reader = df.sparkSession.read.format("conditional-log").option("includeHeaders", str("headers" in columns))
    # One load, so that all that follows sees the same records, whatever is appended meanwhile.
    log = reader.options(**options).load()
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
        wanted_rows=total.wanted,
        found_rows=total.found,
        wanted_digest=_hex(total.wanted_digest),
        found_digest=_hex(total.found_digest),
        missing=total.missing,
        unexpected=total.unexpected,
        out_of_order=out_of_order,
        differences=tuple(differences),
    )


def _compared(df: "DataFrame") -> list[str]:
    for name in ("key", "value"):
        if name not in df.columns:
            raise SchemaError(
                f"a frame is compared with a log by key and value, and has no column {name}; found: "
                f"{', '.join(df.columns)}. Select it under that name."
            )
    return [name for name in _COMPARED if name in df.columns]


def _normal(columns: Sequence[str]) -> "list[Column]":
    """The columns as they are compared: text as its bytes, no headers as an empty list, times in milliseconds."""
    normal = {
        "key": sf.col("key").cast("binary"),
        "value": sf.col("value").cast("binary"),
        "headers": sf.coalesce("headers", sf.array().cast(HEADERS)),
        "timestamp": sf.unix_millis("timestamp"),
        "partition": sf.col("partition"),
    }
    return [normal[name].alias(name) for name in columns]


_PLACE = "struct<partition: int, offset: bigint>"


def _counted(df: "DataFrame", log: "DataFrame", columns: Sequence[str]) -> "DataFrame":
    """Each row that there is, how many the frame and the log have of it, and where in the log the first lies."""
    nowhere, here = sf.lit(None).cast(_PLACE), sf.struct("partition", "offset")
    ours = df.select(*_normal(columns), sf.lit(1).alias("wanted"), sf.lit(0).alias("found"), nowhere.alias("place"))
    theirs = log.select(*_normal(columns), sf.lit(0).alias("wanted"), sf.lit(1).alias("found"), here.alias("place"))
    sums = (sf.sum(name).alias(name) for name in ("wanted", "found"))
    return ours.unionAll(theirs).groupBy(*columns).agg(*sums, sf.min("place").alias("place"))


def _totals(columns: Sequence[str]) -> "list[Column]":
    wanted, found = sf.col("wanted"), sf.col("found")
    one = sf.xxhash64(*columns).cast("decimal(20)")
    sums = {
        "wanted": wanted,
        "found": found,
        "missing": sf.greatest(wanted - found, sf.lit(0)),
        "unexpected": sf.greatest(found - wanted, sf.lit(0)),
        "wanted_digest": one * wanted.cast("decimal(10)"),
        "found_digest": one * found.cast("decimal(10)"),
    }
    return [sf.coalesce(sf.sum(each), sf.lit(0)).alias(name) for name, each in sums.items()]


def _uneven(counted: "DataFrame", first: int) -> list[Difference]:
    unexpected = counted.where("found > wanted").orderBy("place").limit(first).collect()
    missing = counted.where("wanted > found").orderBy("key", "value").limit(first).collect()
    return [
        *(_difference("unexpected", row) for row in unexpected),
        *(_difference("missing", row) for row in missing),
    ]


def _misplaced(
    df: "DataFrame", log: "DataFrame", columns: Sequence[str], order_by: "Sequence[str | Column]"
) -> "DataFrame":
    """The rows of the log that lie behind one of the same key that they should lie before, or not with the others.

    Of rows that are alike the first in the log is taken for the first in the order, and so on: when any way of
    telling them apart puts all rows in order, this one does.
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
    # The frame says which rows go into which partition, or else those of a key all go into one.
    together = Window.partitionBy(*(name for name in ("key", "partition") if name in columns))
    before = together.orderBy("place").rowsBetween(Window.unboundedPreceding, -1)
    late = sf.max("rank").over(before) > sf.col("rank")
    apart = sf.min("place.partition").over(together) != sf.col("place.partition")
    ones = [sf.lit(1).alias("wanted"), sf.lit(1).alias("found")]
    misplaced = sf.coalesce(late | apart, apart).alias("misplaced")
    return pairs.select("key", "value", "place", *ones, misplaced).where("misplaced")


def _difference(kind: Literal["missing", "unexpected", "out of order"], row: "Row") -> Difference:
    key, value = (None if each is None else bytes(each) for each in (row.key, row.value))
    partition, offset = (None, None) if row.place is None else row.place
    return Difference(kind, key, value, partition, offset, row.wanted, row.found)


def _hex(digest: Decimal) -> str:
    return f"{int(digest) % 2**64:016x}"
