"""`route`: brings the rows of each log partition into one task, in one order, and marks the frame."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pyspark.errors import AnalysisException
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType
from pyspark.sql.utils import is_remote

from spark_cas.core.errors import LogNotFoundError, OptionError, SchemaError, StorageError
from spark_cas.core.guarantee import OFF, REQUIRED
from spark_cas.core.plan import EarlierRows
from spark_cas.core.row_claims import COLUMN, NO_CHECK
from spark_cas.log.load.after_expansion import earlier_rows
from spark_cas.log.open import open_log
from spark_cas.options.parse import RouteOptions, parse_read, parse_route
from spark_cas.spark.schema import Mark
from spark_cas.spark.setup import collected, saw_it_run, was_seen_to_run
from spark_cas.spark.writing.partition_by_key import partition_by_key
from spark_cas.spark.writing.preflight import require_count
from spark_cas.spark.writing.remaining_rows import without
from spark_cas.spark.writing.sealed import sealed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Of rows with the same key, those read from a log keep its order, and others come by time.
_TIE_BREAKERS = ("offset", "timestamp", "value", "headers")


class JobNotNamedWarning(UserWarning):
    """The options of a write name no job, so running it again appends all rows again."""


def route(
    df: "DataFrame",
    path_or_options: str | Mapping[str, str | float],
    by: Literal["key", "partition"] = "key",
    order_by: "Sequence[str | Column]" = (),
) -> "DataFrame":
    """The rows of ``df``, ready to be written to a log: all rows of a log partition in one task, in one order.

    ``path_or_options`` is the log's path (``kafka://host:9092/flights`` for a topic), or a dict of the options that
    the write will take; with ``partitions`` in it the log need not exist yet. ``by="key"`` adds the column
    ``partition`` where Kafka's own clients would put the key (murmur2; rows without a key by all of their content),
    ``by="partition"`` keeps the ids that are there. Rows are sorted by ``order_by``, then by the column
    ``expected_offset`` where there is one (not with the option ``compare=key``), rows that expect nothing last, then
    key, then, so that a second attempt of a task sees them in the same order, by all other columns. A stream is not
    sorted: the option ``orderBy`` of its write does that where it matters.

    When the options name a job that partitions were added under before it was complete, the rows that it had appended
    are taken out, and only the rest is placed (not on Spark Connect, whose client does not see the log).

    The session of ``df`` becomes the active one of the calling thread, without which Spark would not find the format
    when the thread writes.

    Raises OptionError, SchemaError; LogNotFoundError when the log is missing and its partition count unknown;
    whatever else reading the log raises. Warns with `JobNotNamedWarning` when a dict names no job
    and does not say ``idempotence=off``, which takes none.
    """
    given = {"path": path_or_options} if isinstance(path_or_options, str) else dict(path_or_options)
    options = parse_route({name: str(value) for name, value in given.items()})
    if not isinstance(path_or_options, str) and options.job is None and options.idempotence != OFF:
        warnings.warn(
            "the options name no job: running this write again would append all rows again. Add 'job'.",
            JobNotNamedWarning,
            stacklevel=2,
        )
    if df.isStreaming and order_by:
        raise OptionError(
            "Spark sorts no stream, and route was given order_by. Leave it out; the write's option orderBy sorts "
            "each batch within its partitions."
        )
    _make_active(df.sparkSession)
    mark = _layout_mark(df.sparkSession, options)
    if not df.isStreaming:
        mark = replace(mark, sorted=True, earlier=() if COLUMN in df.columns else _earlier_rows(options, mark))
    rest = df
    try:
        for earlier in mark.earlier:
            placed = _placed(rest, earlier.partitions, by)
            rest = without(_arranged(placed, earlier.partitions, order_by, by_key=False), earlier)
        placed = _placed(rest, mark.partitions, by)
        if options.whole and options.on_brokers:
            return _marked(sealed(_arranged(placed, mark.partitions, order_by, by_key=options.by_key)), mark)
        # Behind the sort, a projection for the mark would copy each row once more.
        return _arranged(_marked(placed, mark), mark.partitions, order_by, by_key=options.by_key)
    except AnalysisException as error:
        if not mark.earlier:
            raise
        raise OptionError(
            "the load goes on behind an expansion, so its rows are sorted more than once, and Spark does not find "
            "the columns of order_by the second time. Name them: order_by=['x'] or pyspark.sql.functions.col('x'), "
            "not df['x']."
        ) from error


def _marked(df: "DataFrame", mark: Mark) -> "DataFrame":
    return df.withMetadata("partition", mark.metadata())


def _make_active(spark: "SparkSession") -> None:
    """Let this thread write: Spark (4.2) finds a sink in Python through the active session of a thread alone.

    A thread of Python other than the main one begins without. Spark's own `createDataFrame` sets it in the same way.
    """
    jvm = getattr(spark, "_jvm", None)
    # With Spark Connect there is none, and no need.
    if jvm is not None:
        jvm.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001 - Spark has no other way


def _arranged(
    placed: "DataFrame", partitions: int, order_by: "Sequence[str | Column]", *, by_key: bool
) -> "DataFrame":
    """The rows of each partition in one task, the one of its number; those of a batch in one order."""
    together = placed.repartitionById(partitions, sf.col("partition"))
    if together.isStreaming:
        return together  # which Spark sorts by no column
    return together.sortWithinPartitions(*_total_order(placed, order_by, by_key=by_key))


def _earlier_rows(options: RouteOptions, mark: Mark) -> tuple[EarlierRows, ...]:
    """What the job had appended before partitions were added. On Spark Connect only the server may see the log."""
    if options.job is None or options.by_key or mark.layout_epoch is None or is_remote():
        return ()
    with open_log(parse_read(dict(options.reading)).selection.only()) as log:
        try:
            return earlier_rows(log, options.job)
        except StorageError:
            if options.idempotence == REQUIRED:
                raise
            # Who may not see the registry is refused by the write, if it needs that: it looks for itself.
            return ()


def _layout_mark(spark: "SparkSession", options: RouteOptions) -> Mark:
    """The layout of the log. Raises LogNotFoundError, and OptionError where the option partitions says another."""
    try:
        partitions, epoch = _layout(spark, options)
    except LogNotFoundError as absent:
        if options.new_partitions is None:
            raise LogNotFoundError(
                f"{absent.message} Without it route cannot know the partition count: give route the options of the "
                f"write, with 'partitions' in them, or fix the path or the name of the topic."
            ) from None
        return Mark(options.new_partitions, layout_epoch=None)
    if options.partitions not in (None, partitions) and not is_remote():
        # On Spark Connect only the server may see the log: there the write says it.
        with open_log(parse_read(dict(options.reading)).selection.only()) as log:
            require_count(log, options.partitions, partitions)
    return Mark(partitions, epoch)


def _layout(spark: "SparkSession", options: RouteOptions) -> tuple[int, int]:
    """Partition count and layout epoch; LogNotFoundError.

    They are read here once a session has shown that its workers run spark_cas, for a job of Spark's takes long.
    """
    if was_seen_to_run(spark, in_tasks=False):
        with open_log(parse_read(dict(options.reading)).selection.only()) as log:
            layout = log.layout() if options.new_partitions is None else log.layout_now()
        if was_seen_to_run(spark, in_tasks=True):
            return layout.partitions, layout.epoch
    try:
        found = _layout_through(spark, options)
    except LogNotFoundError:
        saw_it_run(spark, in_tasks=False)
        raise
    saw_it_run(spark, in_tasks=True)
    return found


def _layout_through(spark: "SparkSession", options: RouteOptions) -> tuple[int, int]:
    """The same by a job of Spark's: on Spark Connect only its server may see the log. Raises SparkSetupError, too."""
    reader = spark.read.format("conditional-log").options(**dict(options.reading)).option("view", "offsets")
    # As a schema, not as a selection: the reader is told of it, and looks for no more.
    found = collected(reader.schema("layout_epoch int"), spark)
    return len(found), found[0]["layout_epoch"]


def _placed(df: "DataFrame", partitions: int, by: str) -> "DataFrame":
    """The rows with the column ``partition``."""
    if by == "key":
        _require_column(df, "key", BinaryType(), StringType())
        return df.withColumn("partition", partition_by_key(df, partitions))
    if by == "partition":
        _require_column(df, "partition", IntegerType())
        return df
    raise OptionError("route takes by='key' or by='partition', and was given something else.")


def _require_column(df: "DataFrame", name: str, *kinds: DataType) -> None:
    expected = " or ".join(kind.simpleString() for kind in kinds)
    if name not in df.columns:
        raise SchemaError(f"route by {name} needs a column {name} ({expected}); found: {', '.join(df.columns)}.")
    found = df.schema[name].dataType
    if not isinstance(found, tuple(type(kind) for kind in kinds)):
        raise SchemaError(f"column {name} must be {expected}, found {found.simpleString()}. Cast it.")


def _total_order(df: "DataFrame", order_by: "Sequence[str | Column]", *, by_key: bool) -> "list[Column]":
    """``order_by``, then what rows expect, then all columns: rows that are still tied are the same row.

    What is expected of different keys has no order, and must not change it when it is asked for anew.
    """
    first = [sf.col(each) if isinstance(each, str) else each for each in order_by]
    if not by_key and COLUMN in df.columns and df.schema[COLUMN].dataType == LongType():
        first.append(sf.nullif(sf.col(COLUMN), sf.lit(NO_CHECK)).asc_nulls_last())
    names = ["key", *_TIE_BREAKERS, *sorted(set(df.columns) - {"key", "partition", COLUMN, *_TIE_BREAKERS})]
    return first + [_by_bytes(df, name) for name in names if name in df.columns]


def _by_bytes(df: "DataFrame", name: str) -> "Column":
    """A column in the order of its bytes: a collation would leave texts tied that are not the same."""
    kind = df.schema[name].dataType
    collated = isinstance(kind, StringType) and kind != StringType()
    return sf.col(name).cast("binary") if collated else sf.col(name)
