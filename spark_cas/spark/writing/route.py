"""`route`: move the rows of each log partition into one task, sort them, and mark the frame."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Literal

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType
from pyspark.sql.utils import is_remote

from spark_cas.core.errors import LogNotFoundError, OptionError, SchemaError, StorageError
from spark_cas.core.guarantee import REQUIRED
from spark_cas.core.partitioner import DEFAULT_PARTITIONER, Partitioner, known_partitioner
from spark_cas.core.plan import BY_KEY, EarlierRows
from spark_cas.core.row_claims import COLUMN, NO_CHECK
from spark_cas.log.load.after_expansion import earlier_rows
from spark_cas.log.load.planning import placement_on, recorded_partitioner
from spark_cas.log.open import open_log
from spark_cas.options.parse import (
    MOST_TOPICS,
    as_text,
    names_no_topic,
    of_topic,
    parse_route,
    parsed_by_topic,
    stream_to_topics,
)
from spark_cas.options.request import WriteRequest
from spark_cas.spark.jvm import java_session, jvm_of
from spark_cas.spark.schema import CONDITIONS, HEADERS, EndMarkers, Mark, check_record_types, metadata_of_topics
from spark_cas.spark.setup import collected, has_run, record_run, warn_of_idle_timeout
from spark_cas.spark.versions import to_numbered_tasks
from spark_cas.spark.writing.end_markers import (
    is_end_marker,
    with_end_markers,
    with_end_markers_of_topics,
    with_positions,
    without_end_markers,
)
from spark_cas.spark.writing.partition_by_key import partition_by_key
from spark_cas.spark.writing.preflight import refuse_one_transaction, require_count
from spark_cas.spark.writing.verify import without

_SOURCE = "_spark_cas_source"
"""The column that keeps the column ``partition`` of a read until the sort."""
# Of rows with the same key, those read from a log keep its order, and others are ordered by time. After expansions
# that multiply the partition count, the later of two partitions of a key has the higher number. After others, the
# order of its rows is not known.
_TIE_BREAKERS = (_SOURCE, "offset", "timestamp", "value", "headers")


def route(
    df: DataFrame,
    path_or_options: str | Mapping[str, str | float | None],
    by: Literal["key", "partition"] = "key",
    order_by: Sequence[str | Column] = (),
) -> DataFrame:
    """Return the rows of ``df`` ready for a write: all rows of a log partition in one task, in one order.

    With ``by="key"``, this adds the column ``partition``, and assigns keys to partitions as Kafka's own clients do.
    It uses the partitioner of the log, which the option ``partitioner`` of the first write names. A row without a key
    is assigned by all of its content. ``by="partition"`` keeps the existing ids.

    Rows are sorted by ``order_by``, then by the column ``expected_offset`` if there is one, rows without a condition
    last. The option ``compare=key`` leaves this column out. Then rows are sorted by key and by all other columns, so
    that each attempt of a task has the same order. A stream is not sorted: use the option ``orderBy`` of its write.
    The rows of a key that were read from a log keep its order, but not if an expansion of that log did not multiply
    its partition count, as from 4 to 6.

    The rows of each partition of a batch end with an end marker: a row with a negative ``partition`` and no key. The
    write does not append it. If Spark ends a task before its last row, this row is missing, and the write does not
    take the rows so far for all rows. If ``order_by`` has a `Column`, there are no end markers, because Spark cannot
    compute each `Column` for them. Then the options ``atomic=true`` and, on Kafka, ``atomic=load`` are rejected.

    If the options name brokers but no topic, the column ``topic`` names the topic of each row, and the write appends
    to all these topics. To find the topics, Spark computes the rows a second time. There can be at most 100.

    If the options name a job that an expansion interrupted, the rows that it has appended are removed. The remaining
    rows are assigned to the new partitions. This does not apply to Spark Connect, whose client cannot read the log.

    The session of ``df`` becomes the active session of the calling thread. Otherwise Spark does not find the format
    when the thread writes.

    Args:
        df: The rows to write.
        path_or_options: The path of the log (``kafka://host:9092/flights`` for a topic), or a dict of the options of
            the write. With the option ``partitions``, the log need not exist yet.
        by: ``"key"`` or ``"partition"``.
        order_by: The columns that determine the order of the rows of each partition, best by name.

    Returns:
        The routed rows. Do not change them before the write.

    Raises:
        OptionError: An option is invalid, or differs from the log.
        SchemaError: The frame lacks the column ``key`` or ``partition``, or a column has the wrong type.
        LogNotFoundError: The log is missing, and the options have no partition count.
        InputChangedError: The frame is empty, but the job has appended rows before an expansion.
        SparkSetupError: Spark's workers run a Python without spark_cas.
        StorageError: The log cannot be read.
    """
    options = as_text(path_or_options)
    names = {name.lower() for name in df.columns}
    has_columns = all(isinstance(each, str) and each.lower() in names for each in order_by)
    if names_no_topic(options) and "topic" in df.columns:
        return _routed_to_topics(df, options, by, order_by, has_columns=has_columns)
    return route_rows(df, parse_route(options), by, order_by, has_columns=has_columns)


def route_rows(
    df: DataFrame,
    request: WriteRequest,
    by: str = "key",
    order_by: Sequence[str | Column] = (),
    *,
    has_columns: bool,
) -> DataFrame:
    """Return the rows of a frame ready for a write, as `route` does.

    With ``has_columns``, ``order_by`` has only columns of ``df``, apart from ``asc`` and ``desc``. Otherwise the
    result has no end markers.
    """
    _make_active(df.sparkSession)
    warn_of_idle_timeout(df.sparkSession, request.longest_wait_seconds(streaming=df.isStreaming))
    check_record_types(df.schema)
    if df.isStreaming and order_by:
        raise OptionError(
            "route cannot sort a stream by order_by. Remove order_by, and use the write's option orderBy, which "
            "sorts each batch within its partitions."
        )
    mark = _layout_mark(df.sparkSession, request, by)
    if df.isStreaming:
        refuse_one_transaction(request)
    elif not has_columns and (request.atomic or request.in_one_task):
        raise OptionError(
            "with this option atomic, route(order_by=...) takes only names of columns of the DataFrame. Nothing was "
            "appended. Add a column for the expression first, and name it."
        )
    else:
        markers: EndMarkers = ("load" if request.in_one_task else "partition") if has_columns else "none"
        earlier_rows = () if COLUMN in df.columns else _earlier_rows(request, mark)
        mark = replace(mark, end_markers=markers, sorted=True, earlier=earlier_rows)
    remaining = _with_source(without_end_markers(df), by)
    try:
        for earlier in mark.earlier:
            placed = _placed(remaining, earlier.partitions, by, mark.partitioner)
            together = to_numbered_tasks(placed, earlier.partitions, sf.col("partition"))
            remaining = without(together.sortWithinPartitions(*_total_order(placed, order_by, by_key=False)), earlier)
        placed = _placed(remaining, mark.partitions, by, mark.partitioner)
        has_markers = mark.end_markers != "none"
        if has_markers:
            placed = with_end_markers(placed, mark.partitions)
        # Mark before the sort: a projection after it would copy each row.
        rows = to_numbered_tasks(_marked(placed, mark), mark.partitions, sf.col("partition"))
        if df.isStreaming:
            return rows
        order = _total_order(placed, order_by, by_key=request.compare == BY_KEY, markers_last=has_markers)
        rows = rows.sortWithinPartitions(*order).drop(_SOURCE)
        return _marked(with_positions(rows), mark) if mark.end_markers == "load" else rows
    except AnalysisException as error:
        if not mark.earlier:
            raise
        raise OptionError(
            "the load resumes after an expansion, so route sorts its rows more than once, and Spark does not find "
            "the columns of order_by the second time. Use order_by=['x'] or pyspark.sql.functions.col('x'), not "
            "df['x']."
        ) from error


def _routed_to_topics(
    df: DataFrame, settings: Mapping[str, str], by: str, order_by: Sequence[str | Column], *, has_columns: bool
) -> DataFrame:
    """Return the rows ready for a write to the topics in their column ``topic``. Each partition is one task.

    Raises the errors of `route`.
    """
    _make_active(df.sparkSession)
    check_record_types(df.schema)
    if df.isStreaming:
        raise stream_to_topics()
    if not has_columns:
        raise OptionError(
            "without option topic, route(order_by=...) takes only names of columns of the DataFrame. Nothing was "
            "appended. Add a column for the expression first, and name it."
        )
    rows = _with_source(without_end_markers(df), by)
    requests = parsed_by_topic(settings, _topics_in(rows), parse_route)
    if len({each.compare for each in requests.values()}) > 1:
        raise OptionError("option compare differs between the topics by the defaults of the logs. Set it for all.")
    waits = (each.longest_wait_seconds(streaming=False) for each in requests.values())
    warn_of_idle_timeout(df.sparkSession, max(waits, default=0))
    marks = {topic: _mark_of_topic(rows.sparkSession, topic, each, by) for topic, each in requests.items()}
    if not marks:
        empty = rows.withColumn("partition", sf.lit(None).cast(IntegerType()))
        return empty.drop(_SOURCE).withMetadata("partition", metadata_of_topics(marks))
    placed = rows.withColumn("partition", _partition_in_topic(rows, marks, by))
    counts = {topic: mark.partitions for topic, mark in marks.items()}
    placed = with_end_markers_of_topics(placed, counts).withMetadata("partition", metadata_of_topics(marks))
    ends = dict(zip(counts, accumulate(counts.values()), strict=True))
    # The partition of an end marker is negative. Of a row it can be null, which the write rejects.
    partition = sf.coalesce(sf.col("partition"), sf.lit(0))
    task = _of_topic(ends) - _of_topic(counts) + sf.pmod(partition, _of_topic(counts))
    by_key = any(each.compare == BY_KEY for each in requests.values())
    order = _total_order(placed, order_by, by_key=by_key, markers_last=True)
    return to_numbered_tasks(placed, sum(counts.values()), task).sortWithinPartitions(*order).drop(_SOURCE)


def _topics_in(df: DataFrame) -> list[str]:
    """Return the values of the column ``topic``; raise OptionError for a null, or for too many."""
    _require_column(df, "topic", StringType())
    result = [row[0] for row in df.select(_topic()).distinct().limit(MOST_TOPICS + 1).collect()]
    if None in result:
        raise SchemaError("a row has no topic: its column topic is null. Nothing was appended. Set it in each row.")
    if len(result) > MOST_TOPICS:
        raise OptionError(
            f"the column topic has more than {MOST_TOPICS} values, the maximum number of topics of a write. Nothing "
            f"was appended. Check the column, or write the rows with several loads."
        )
    return result


def _topic() -> Column:
    """Return the topic of a row. With a collation, different names may compare as equal, so the cast removes it."""
    return sf.col("topic").cast(StringType())


def _of_topic(numbers: Mapping[str, int]) -> Column:
    """Return the number that the topic of a row has; null for another topic."""
    return sf.create_map(*(sf.lit(each) for entry in numbers.items() for each in entry))[_topic()]


def _mark_of_topic(spark: SparkSession, topic: str, request: WriteRequest, by: str) -> Mark:
    with of_topic(topic):
        mark = _layout_mark(spark, request, by)
        if _earlier_rows(request, mark):
            raise OptionError(
                f"partitions were added to the topic after job {request.job!r} had appended rows. A load without "
                f"option topic cannot resume this job. Nothing was appended now. For each topic, filter the rows by "
                f"the column topic, and route and write them with option topic under the same job name.",
                job=request.job,
            )
    return replace(mark, end_markers="partition", sorted=True)


def _partition_in_topic(df: DataFrame, marks: Mapping[str, Mark], by: str) -> Column:
    """Return the partition of each row in its topic; null for a topic without a mark."""
    topics: dict[tuple[int, Partitioner | None], list[str]] = {}
    for topic, mark in marks.items():
        topics.setdefault((mark.partitions, mark.partitioner), []).append(topic)
    columns = [
        sf.when(_topic().isin(names), _partition_of_row(df, partitions, by, partitioner))
        for (partitions, partitioner), names in topics.items()
    ]
    return sf.coalesce(*columns)


def _with_source(df: DataFrame, by: str) -> DataFrame:
    """Return the rows with the column `_SOURCE` if they are a batch of a log, and ``by`` replaces its partitions."""
    is_read = by == "key" and not df.isStreaming and {"partition", "offset"} <= set(df.columns)
    # Rows without a key may move anywhere, and have no order to keep.
    return df.withColumn(_SOURCE, sf.when(sf.col("key").isNotNull(), sf.col("partition"))) if is_read else df


def _marked(df: DataFrame, mark: Mark) -> DataFrame:
    return df.withMetadata("partition", mark.metadata())


def _make_active(spark: SparkSession) -> None:
    """Make a session the active one of this thread, so that the thread can write.

    Spark 4.2 finds a Python data sink only through the active session of the thread. Python threads other than the
    main one have none. Spark's own `createDataFrame` sets it in the same way.
    """
    jvm = jvm_of(spark)
    # Spark Connect has no JVM here, and does not need this.
    if jvm is not None:
        jvm.SparkSession.setActiveSession(java_session(spark))


def _earlier_rows(request: WriteRequest, mark: Mark) -> tuple[EarlierRows, ...]:
    """Return the rows that the job appended before partitions were added.

    On Spark Connect the result is empty, because only the server may be able to reach the log.
    """
    if request.job is None or request.compare == BY_KEY or mark.layout_epoch is None or is_remote():
        return ()
    with open_log(request.spec) as log:
        try:
            return earlier_rows(log, request.job)
        except StorageError:
            if request.idempotence == REQUIRED:
                raise
            # The write reads the registry itself, and fails if it needs it and may not read it.
            return ()


def _layout_mark(spark: SparkSession, request: WriteRequest, by: str) -> Mark:
    """Return the layout of the log and, for rows that are assigned by key, the partitioner.

    Raises LogNotFoundError; OptionError if an option names another partition count or partitioner than the log has.
    """
    try:
        partitions, epoch, recorded = _layout(spark, request, by)
    except LogNotFoundError as absent:
        if request.new_partitions is None:
            raise LogNotFoundError(
                f"{absent.message} Nothing was appended. To create the log, give route the options of the write with "
                f"'partitions', or a bulk load --partitions."
            ) from None
        partitions, epoch, recorded = request.new_partitions, None, None
    if epoch is not None and request.partitions not in (None, partitions) and not is_remote():
        # On Spark Connect only the server may reach the log. There the write checks this.
        with open_log(request.spec) as log:
            require_count(log, request.partitions, partitions)
    partitioner = placement_on(recorded, request.partitioner).partitioner if by == "key" else None
    options = tuple(name for name in CONDITIONS if name in request.names)
    return Mark(partitions, epoch, partitioner=partitioner, options=options)


_LogLayout = tuple[int, int, Partitioner | None]
"""Partition count, layout epoch, and the recorded partitioner if the rows are assigned by key."""


def _layout(spark: SparkSession, request: WriteRequest, by: str) -> _LogLayout:
    """Read the layout of the log. Raises LogNotFoundError.

    This process reads it once the planner of the session has run spark_cas. If tasks have not run it yet, a Spark job
    reads it as well. Such a job takes longer, but detects a wrong setup of the workers.
    """
    if has_run(spark, in_tasks=False):
        with open_log(request.spec) as log:
            layout = log.layout() if request.new_partitions is None else log.layout_now()
            recorded = recorded_partitioner(log, request.idempotence) if by == "key" else None
        if has_run(spark, in_tasks=True):
            return layout.partitions, layout.epoch, recorded
    try:
        result = _layout_through(spark, request, by)
    except LogNotFoundError:
        record_run(spark, in_tasks=False)
        raise
    record_run(spark, in_tasks=True)
    return result


def _layout_through(spark: SparkSession, request: WriteRequest, by: str) -> _LogLayout:
    """Read the layout with a Spark job, because on Spark Connect only the server may be able to reach the log.

    Raises SparkSetupError, and the errors of `_layout`.
    """
    reader = spark.read.format("conditional-log").options(**dict(request.reading)).option("view", "offsets")
    # Spark passes a schema to the reader, which then reads no more than these columns. It passes no selection.
    schema = "layout_epoch int, partitioner string" if by == "key" else "layout_epoch int"
    try:
        result = collected(reader.schema(schema), spark)
    except StorageError:
        if by != "key" or request.idempotence == REQUIRED:
            raise
        # A write that does not require exactly-once needs no registry, as in `recorded_partitioner`.
        result = collected(reader.schema("layout_epoch int"), spark)
    recorded = result[0].asDict().get("partitioner")
    return len(result), result[0]["layout_epoch"], None if recorded is None else known_partitioner(recorded)


def _placed(df: DataFrame, partitions: int, by: str, partitioner: Partitioner | None) -> DataFrame:
    return df.withColumn("partition", _partition_of_row(df, partitions, by, partitioner))


def _partition_of_row(df: DataFrame, partitions: int, by: str, partitioner: Partitioner | None) -> Column:
    if by == "key":
        _require_column(df, "key", BinaryType(), StringType())
        return partition_by_key(df, partitions, partitioner or DEFAULT_PARTITIONER)
    if by == "partition":
        _require_column(df, "partition", IntegerType())
        return sf.col("partition")
    raise OptionError("route takes only by='key' or by='partition'.")


def _require_column(df: DataFrame, name: str, *kinds: DataType) -> None:
    expected = " or ".join(kind.simpleString() for kind in kinds)
    if name not in df.columns:
        raise SchemaError(f"route by {name} needs a column {name} ({expected}); found: {', '.join(df.columns)}.")
    result = df.schema[name].dataType
    if not isinstance(result, tuple(type(kind) for kind in kinds)):
        raise SchemaError(f"column {name} must be {expected}, found {result.simpleString()}. Cast it.")


def _total_order(
    df: DataFrame, order_by: Sequence[str | Column], *, by_key: bool, markers_last: bool = False
) -> list[Column]:
    """Return the columns to sort by: ``order_by``, expected offsets, then all other columns. Tied rows are identical.

    With ``by_key``, expected offsets are left out. Those of different keys have no order, and a rerun may have new
    ones. With ``markers_last``, an end marker is after the rows of its partition. Without ``order_by``, the first
    column is still the key, because Spark compares rows faster by it than by a column with only two values.
    """
    first = [sf.col(each) if isinstance(each, str) else each for each in order_by]
    if markers_last and first:
        first.insert(0, is_end_marker())
    if not by_key and COLUMN in df.columns and df.schema[COLUMN].dataType == LongType():
        first.append(sf.nullif(sf.col(COLUMN), sf.lit(NO_CHECK)).asc_nulls_last())
    others = sorted(set(df.columns) - {"key", "partition", COLUMN, *_TIE_BREAKERS})
    remaining = [_by_bytes(df, name).asc_nulls_last() for name in (*_TIE_BREAKERS, *others) if name in df.columns]
    if "key" in df.columns:
        first.append(_by_bytes(df, "key").asc_nulls_last())
    return [*first, is_end_marker(), *remaining] if markers_last else first + remaining


def _by_bytes(df: DataFrame, name: str) -> Column:
    """Return a column that sorts by bytes. With a collation, different strings may compare as equal."""
    kind = df.schema[name].dataType
    if " collate " not in kind.simpleString() or not (isinstance(kind, StringType) or name == "headers"):
        return sf.col(name)
    return sf.col(name).cast(HEADERS if name == "headers" else BinaryType())
