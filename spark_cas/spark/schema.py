"""Schemas of reads and writes, and the routing mark that `route` adds to a frame."""

import difflib
import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any, Literal

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_cas.core.errors import LayoutChangedError, NotRoutedError, OptionError, SchemaError
from spark_cas.core.partitioner import Partitioner
from spark_cas.core.plan import EarlierRows, Layout
from spark_cas.core.recorded_fields import INVALID_FIELDS, from_fields, to_json
from spark_cas.core.row_claims import COLUMN

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

_TYPES = {
    "binary": BinaryType(),
    "string": StringType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "map<int,bigint>": MapType(IntegerType(), LongType()),
}


def _columns(*texts: str) -> StructType:
    """Return the columns in texts of names and types. Spark's own parser needs a session."""
    columns = [each.split() for text in texts for each in text.split(", ")]
    return StructType([StructField(name, _TYPES[kind]) for name, kind in columns])


RECORDS = _columns(
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
"""The columns and types of Spark's Kafka source."""

RECORDS_AND_HEADERS = StructType([*RECORDS.fields, StructField("headers", HEADERS)])

OFFSETS = _columns(
    "topic string, partition int, start_offset bigint, end_offset bigint, layout_epoch int, log_id string, "
    "thresholds map<int,bigint>, partitioner string"
)

PROGRESS = _columns(
    "job string, topic string, partition int, rows bigint, base_offset bigint, end_offset bigint, chunks bigint, "
    "complete boolean, digest string, committed_at timestamp, round_of string",
    "resumed_rows bigint, attempts bigint, resolved bigint, aborted_rows bigint, timestamp timestamp, "
    "has_offset boolean, has_timestamp boolean, start_offset bigint, guarantee string",
)

NULLABLE = frozenset({"key", "value", "headers", "timestamp"})
"""Columns of a read that can contain nulls."""


def read_schema(view: str, *, include_headers: bool) -> StructType:
    """Return all columns of a view. Only views of records have the column ``headers``."""
    if view == "offsets":
        return OFFSETS
    if view == "progress":
        return PROGRESS
    return RECORDS_AND_HEADERS if include_headers else RECORDS


def check_read_schema(values: StructType, view: str) -> None:
    """Check the requested schema of a read: any columns of the view, in any order, with their types.

    The schema may name ``headers`` without the option ``includeHeaders``. Raises SchemaError if a column is unknown
    or repeated, has another type, or excludes nulls that it can contain, and if there is no column.
    """
    columns = {field.name: field.dataType for field in read_schema(view, include_headers=True)}
    for field in values:
        expected = columns.get(field.name)
        if expected is None:
            raise SchemaError(
                f"a read has no column {field.name!r}.{_nearest(field.name, columns)} It has "
                f"{', '.join(columns)}. Leave the column out."
            )
        if not _same(field.dataType, expected):
            raise SchemaError(
                f"column {field.name} has type {expected.simpleString()}, but the schema of the read has "
                f"{field.dataType.simpleString()}. Read it with its type, then cast."
            )
        if not field.nullable and field.name in NULLABLE:
            raise SchemaError(
                f"column {field.name} can have nulls, but the schema of the read has NOT NULL. Remove it."
            )
    names = values.fieldNames()
    if not names or len(set(names)) < len(names):
        raise SchemaError("the schema of a read needs at least one column, and each only once.")


EndMarkers = Literal["none", "partition", "load"]
"""The end markers of a frame (`spark_cas.spark.writing.end_markers`).

- ``none``: It has none.
- ``partition``: The marker of partition p has the partition id ``p - count``, so it gets into the task of p.
- ``load``: All rows are in one task. A marker after n rows and markers has the partition id ``-1 - n``.
"""

CONDITIONS = ("job", "batchId", "expectedOffsets", "compare", "atomic")
"""The options that a write needs if `route` had them. Without them, the write would do less than requested."""

MARK = "spark_cas"
"""The key of the routing mark in the metadata of the column ``partition``."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The layout that a frame was routed for."""

    partitions: int
    layout_epoch: int | None
    """None if the log did not exist. The backend chooses the epoch of a new log."""
    end_markers: EndMarkers = "none"
    sorted: bool = False
    """Whether the rows of a partition have the same order in each attempt of a task."""
    earlier: tuple[EarlierRows, ...] = ()
    """The rows that the load appended before partitions were added. They are not in the frame."""
    input: str = ""
    """Digest of the bulk load's input list (`spark_cas.core.input_list`); empty for any other frame."""
    partitioner: Partitioner | None = None
    """The partitioner that assigned the rows; None if the caller of `route` assigned them."""
    options: tuple[str, ...] = ()
    """The names of the options of `route` that are `CONDITIONS`."""

    def metadata(self) -> dict[str, Any]:
        """Return the mark as column metadata, which can have no null. Fields with their default are left out."""
        stored = json.loads(to_json(self))
        kept = (each.name for each in fields(self) if getattr(self, each.name) not in (each.default, None))
        return {MARK: {name: stored[name] for name in kept}}

    def require_whole(self) -> None:
        """Raise NotRoutedError if `route` removed the rows that a job had already appended.

        A write that is not part of that job must not use such a frame.
        """
        if self.earlier:
            raise NotRoutedError(
                f"the frame was routed for job {self.earlier[0].job!r}, without the rows that this job had appended, "
                f"and is now written otherwise. Nothing was appended. Call spark_cas.route with the options of this "
                f"write."
            )

    def require_options(self, names: Collection[str]) -> None:
        """Raise OptionError if the names of the options of the write lack one of `options`."""
        absent = [each for each in self.options if each not in names]
        if absent:
            raise OptionError(
                f"spark_cas.route had the option {absent[0]}, which the write lacks. Nothing was appended. Use the "
                f"same options in both, or remove it from those of route."
            )

    def require_new(self, partitions: int) -> None:
        """Check that the frame was routed for a missing log that gets this partition count.

        Raises LayoutChangedError if it was routed for an existing log, and NotRoutedError if the partition count
        differs.
        """
        if self.layout_epoch is not None:
            raise LayoutChangedError(
                "the rows were routed for a log that is not there any more. Nothing was appended. Route the rows "
                "again.",
                resumable=True,
            )
        self._require_count(partitions)

    def require(self, layout: Layout) -> None:
        """Check that the frame was routed for this layout.

        Raises LayoutChangedError if the layout epoch differs, and NotRoutedError if only the partition count does.
        """
        if self.layout_epoch not in (None, layout.epoch):
            raise LayoutChangedError(
                f"the rows were routed for layout epoch {self.layout_epoch}, but the log has epoch "
                f"{layout.epoch}: partitions were added. Nothing was appended. Route the rows again.",
                resumable=True,
            )
        self._require_count(layout.partitions)

    def _require_count(self, partitions: int) -> None:
        if self.partitions != partitions:
            raise NotRoutedError(
                f"the rows were routed for {self.partitions} partitions, but the log has {partitions}: they were "
                f"routed for another log. Nothing was appended. Call spark_cas.route with the options of this write."
            )


_TOPICS = "topics"
"""The key of the marks of several topics within the routing mark."""


def metadata_of_topics(marks: Mapping[str, Mark]) -> dict[str, Any]:
    """Return the marks of the topics of a frame as column metadata."""
    return {MARK: {_TOPICS: {topic: mark.metadata()[MARK] for topic, mark in marks.items()}}}


def marks_by_topic(schema: StructType) -> dict[str, Mark] | None:
    """Return the mark of each topic of a frame that `route` routed to several topics, None for any other frame."""
    mark = schema["partition"].metadata.get(MARK) if "partition" in schema.fieldNames() else None
    topics = mark.get(_TOPICS) if isinstance(mark, dict) else None
    if not isinstance(topics, dict):
        return None
    marks = {topic: result for topic, each in topics.items() if (result := _mark_from(each)) is not None}
    return marks if len(marks) == len(topics) else None


def with_mark(schema: StructType, mark: Mark) -> StructType:
    """Return the schema of a frame with another routing mark."""
    marked = StructField("partition", IntegerType(), metadata=mark.metadata())
    return StructType([marked if each.name == "partition" else each for each in schema])


def mark_of(schema: StructType) -> Mark | None:
    """Return the routing mark of a frame for one log, or None if it has no valid one."""
    return _mark_from(schema["partition"].metadata.get(MARK))


def _mark_from(result: object) -> Mark | None:
    """Return the mark that `Mark.metadata` stored, or None if it is not valid."""
    if not isinstance(result, dict):
        return None
    with suppress(*INVALID_FIELDS):
        return from_fields(Mark, {"layout_epoch": None, **result})
    return None


_WRITTEN: dict[str, tuple[DataType, ...]] = {
    "key": (BinaryType(), StringType()),
    "value": (BinaryType(), StringType()),
    "headers": (HEADERS,),
    "partition": (IntegerType(),),
    "timestamp": (TimestampType(),),
    COLUMN: (LongType(),),
}

_NESTED = frozenset({"array", "map", "struct", "variant"})
_LONGEST_TYPE = 200

IGNORED = frozenset({"topic", "offset", "timestampType"})
"""Columns of a read that a write to one log ignores, so that a frame from a read can be written unchanged."""


def check_write_schema(
    schema: StructType,
    *,
    routed: bool,
    in_any_task: bool = False,
    on_brokers: bool = True,
    names: Collection[str] = (),
) -> Mark | None:
    """Check the columns of a frame to write, and return its routing mark, or None.

    Args:
        routed: Whether the caller states that all rows of a partition are in one task.
        in_any_task: Whether any task may append rows of any partition. Then the column ``partition`` may be missing.
        on_brokers: Whether the log is a topic. Any other log rejects the column ``topic``, except in a frame from a
            read, which also has the column ``offset``.
        names: The names of the options of the write. Their values may be secret.

    Raises:
        SchemaError: A column is missing, unknown, repeated or of the wrong type, or does not suit the log.
        NotRoutedError: The column ``partition`` is missing, or there is no mark and ``routed`` is false.
    """
    if not on_brokers and "topic" in schema.fieldNames() and "offset" not in schema.fieldNames():
        raise SchemaError(
            "the frame has a column topic, but the path of this write is one log in a directory or an object store. "
            "Nothing was appended. Drop the column, and write the rows of each log with its own path."
        )
    known: set[str] = set()
    for field in schema:
        if field.name in IGNORED:
            continue
        _check_written(field)
        if field.name in known:
            raise SchemaError(f"column {field.name} is there twice. Drop or rename one.")
        known.add(field.name)
    for name in ("key", "value"):
        if name not in known:
            raise SchemaError(
                f"column {name} (binary or string) is missing; found: {', '.join(schema.fieldNames()) or 'none'}. "
                f"Select it; for records without one add lit(None).cast('binary') under that name."
            )
    if "partition" not in known:
        if in_any_task:
            return None
        raise NotRoutedError(
            f"the frame has no column partition, the partition of each row. Nothing was appended. Before the write, "
            f"run {_call_of_route(names)}. It adds the column, and moves the rows of each log partition into one "
            f"task."
        )
    mark = mark_of(schema)
    if mark is None and not routed and not in_any_task:
        raise NotRoutedError(
            f"the frame was not routed, so the rows of a log partition may be in several tasks. Nothing was "
            f"appended. Before the write, run {_call_of_route(names)}, and add by='partition' to keep existing ids. "
            f"If each task has all rows of its log partitions, in an order that a retry repeats, set "
            f"option('routed', 'true')."
        )
    return mark


def _call_of_route(names: Collection[str]) -> str:
    options = ", ".join(f"{name!r}: ..." for name in names)
    return f"df = spark_cas.route(df, {{{options}}}), with the values of the write in place of ..."


def check_record_types(schema: StructType) -> None:
    """Raise SchemaError if ``key``, ``value`` or ``headers`` has a wrong type.

    `route` checks this before it sorts by these columns, because Spark's error for a struct or map has no fix.
    """
    for field in schema:
        if field.name in ("key", "value", "headers"):
            _check_type(field, _WRITTEN[field.name])


def refuse_claims(schema: StructType, why: str) -> None:
    """Raise SchemaError if the rows have expected offsets, because the write would not check them."""
    if COLUMN in schema.fieldNames():
        raise SchemaError(f"the frame has the column {COLUMN}, whose offsets would not be checked: {why}")


def check_not_overwrite(*, overwrite: bool) -> None:
    """Raise OptionError for a write that would replace the log."""
    if overwrite:
        raise OptionError("a log only grows, so mode overwrite is rejected. Use .mode('append'), in SQL INSERT INTO.")


def _check_written(field: StructField) -> None:
    expected = _WRITTEN.get(field.name)
    if expected is None:
        raise SchemaError(
            f"a write does not take a column {field.name!r}.{_nearest(field.name, _WRITTEN)} It takes "
            f"{', '.join(_WRITTEN)}. Drop the column, or put it into the value."
        )
    _check_type(field, expected)


def _check_type(field: StructField, expected: tuple[DataType, ...]) -> None:
    if any(_same(field.dataType, each) for each in expected):
        return
    name = field.dataType.simpleString()
    if len(name) > _LONGEST_TYPE:
        name = f"{name[:_LONGEST_TYPE]}..."
    raise SchemaError(
        f"column {field.name} must be {' or '.join(each.simpleString() for each in expected)}, found {name}. "
        f"Nothing was appended. {_conversion(field)}"
    )


def _conversion(field: StructField) -> str:
    if field.name == "headers" and isinstance(field.dataType, MapType):
        return (
            "Use expr('transform(map_entries(headers), e -> struct(cast(e.key as string) as key, cast(e.value as "
            "binary) as value))')."
        )
    if field.name in ("key", "value") and field.dataType.typeName() in _NESTED:
        return f"Use to_json({field.name}), for example .withColumn('{field.name}', to_json('{field.name}'))."
    return "Cast it."


def _same(one: DataType, other: DataType) -> bool:
    """Return whether two types are equal, apart from the nullability of elements and fields, and collations."""
    match one, other:
        case ArrayType(), ArrayType():
            return _same(one.elementType, other.elementType)
        case StructType(), StructType():
            return one.fieldNames() == other.fieldNames() and all(
                _same(own.dataType, its.dataType) for own, its in zip(one, other, strict=True)
            )
        case StringType(), StringType():
            return True
    return one == other


def _nearest(name: str, known: dict[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    near = near or [each for each in known if each.lower() == name.lower()]
    return f" Did you mean {near[0]}?" if near else ""
