"""Rows of a load: a reader returns columns, and SQL expressions convert them to records, under pinned settings."""

import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING
from warnings import catch_warnings

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it
from pyspark.sql.types import BinaryType, StringType, TimestampType
from pyspark.sql.utils import is_remote

from spark_cas.core.input_list import InputFile
from spark_cas.programs.arguments import LoadRequest
from spark_cas.programs.bad_rows import (
    SOURCE,
    DeadLetters,
    RowLimits,
    bad_records,
    bad_row,
    has_microseconds,
    naming,
    reason_of,
)
from spark_cas.programs.errors import UsageError, in_short
from spark_cas.programs.input.avro_files import avro_rows
from spark_cas.programs.input.columnar_files import ORC_SETTINGS, columnar_rows
from spark_cas.programs.input.columns import quoted, with_folder_columns
from spark_cas.programs.input.csv_rows import csv_rows
from spark_cas.programs.input.csv_text import CsvText, parse_csv_options
from spark_cas.programs.input.exact_values import ReadOptions
from spark_cas.programs.input.footers import footer_rows
from spark_cas.programs.input.json_rows import DOCUMENT, json_rows
from spark_cas.programs.input.parts import BAD, POSITION, POSITION_COLUMNS, UTF_8, encoding_name, keeps_line_ends
from spark_cas.programs.input.recorded_list import ListedInput
from spark_cas.programs.input.row_json import JSON_OPTIONS, row_json
from spark_cas.programs.input.spark_files import (
    binary_rows,
    checked_files,
    first_lines,
    require_complete,
    text_rows,
    whole_file_settings,
)
from spark_cas.programs.load_report import recorded_rows
from spark_cas.spark.schema import mark_of
from spark_cas.spark.writing.route import route_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from spark_cas.options.request import WriteRequest

_OWN_COLUMN = re.compile(r", `_input_\w+`")
"""A column of the load itself, in a list of suggestions."""
_STAR = re.compile(r"[(,]\s*(?:\w+\s*\.\s*)?\*\s*[,)]")
"""An argument that represents all columns."""
_NO_STAR = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|\bcount\s*\(\s*\*\s*\)", re.IGNORECASE)
"""Literals, quoted names, and the count of rows."""
_VARIES = re.compile(
    r"\b(?:now|curdate|localtimestamp|user|session_user|current_\w+|unix_timestamp)\(\d?\)"
    r"|\b_metadata\.file_block_\w+|\baes_encrypt\((?!.*, ECB, ).*, , ",
    re.IGNORECASE | re.DOTALL,
)
"""A function of the time or the user, the part of a file that a task reads, or encryption with a random start."""
_TIME_WINDOW = re.compile(r"\b(?:session_)?window\s*\(", re.IGNORECASE)
"""A function that omits rows without a time, and may repeat others."""
_MOVING_TIME = re.compile(r"(['\"])\s*(?:now|today|tomorrow|yesterday)\s*\1", re.IGNORECASE)
"""A text that Spark converts to the current time or date, where it expects one."""
_TIME_TYPE = re.compile(r"\b(?:to_)?date\b|timestamp", re.IGNORECASE)
_DIRECTION = re.compile(r"(?P<expression>.+?)\s+(?P<direction>asc|desc)\s*", re.IGNORECASE | re.DOTALL)
_FIRST_LINES = 100
_ORDER = "_order_"
_RECORD = ("key", "value", "headers", "timestamp")


def routed_rows(rows: "DataFrame", order: "list[Column]", write: "WriteRequest", digest: str) -> "DataFrame":
    """Route the rows of `ordered_rows`, and record the digest of the input list with the plan of the load.

    Raises ConditionalLogError if `route` rejects the rows.
    """
    routed = route_rows(rows, write, order_by=order, has_columns=True)
    mark = mark_of(routed.schema)
    if mark is not None:
        routed = routed.withMetadata("partition", replace(mark, input=digest).metadata())
    return routed.select(*(name for name in routed.columns if name in (*_RECORD, "partition")))


def ordered_rows(
    spark: "SparkSession", request: LoadRequest, files: Sequence[InputFile], limits: RowLimits | None = None
) -> "tuple[DataFrame, list[Column], DataFrame | None]":
    """Return the records of a load, with further columns that order them, that order, and the bad rows.

    The order is that of ``--order-by``, then the position in the input. With limits, the records do not include the
    rows that cannot be appended. Only the content of a row and the limits decide, so each run and each attempt of a
    task separates the same rows. Raises UsageError if the input or an expression is invalid.
    """
    with wrong_call():
        frame, positions = _read(spark, request, files)
        named = [F.col(name).desc() if falls else F.col(name).asc() for name, _, falls in _order(request)]
        order = [*named, *map(F.col, positions)]
        if limits is None:
            return _records(request, frame, positions), order, None
        malformed = None
        if BAD in frame.columns:
            malformed = frame.where(F.col(BAD).isNotNull()).select(BAD, *positions)
            frame = frame.where(F.col(BAD).isNull()).drop(BAD)
        # The rows of Parquet files have a number. The positions in other files have gaps.
        has_numbers = request.format == "parquet"
        rows = _records(request, frame, positions, _source_text(frame, positions).alias(SOURCE))
        reason = reason_of(rows, limits, tombstones=request.tombstones)
        rejected = rows.where(reason.isNotNull())
        bad = rejected.select(bad_row(reason, POSITION if has_numbers else None).alias(BAD), *positions)
        bad = bad if malformed is None else bad.unionByName(malformed)
    return rows.where(reason.isNull()).drop(SOURCE), order, bad


def append_bad_rows(bad: "DataFrame", source: ListedInput, letters: DeadLetters, job: str) -> int:
    """Append the bad rows to a log, unless an earlier run has. Return their number.

    ``bad`` are the rows, as `ordered_rows` returns them, and ``job`` is the job of the load. Raises
    ConditionalLogError.
    """
    with naming(letters.write.spec.url, letters.job):
        records, order = bad_records(bad, source.files, job)
        routed = routed_rows(records, order, letters.write, source.list.digest)
        routed.write.format("conditional-log").mode("append").options(**letters.options).save()
        return recorded_rows(letters.write.spec, letters.job).rows


def _records(request: LoadRequest, frame: "DataFrame", positions: Sequence[str], *more: "Column") -> "DataFrame":
    columns = [_key(request, frame), _value(request, frame, positions)]
    columns += [*_headers(request, frame), *_timestamp(request, frame)]
    # CASE turns a misspelled word after an expression, such as "x DSC", into an error instead of an alias.
    order = [
        _expression(request, frame, "--order-by", f"CASE WHEN true THEN {text} END").alias(name)
        for name, text, _ in _order(request)
    ]
    rows = frame.select(*columns, *order, *positions, *more)
    if request.value_avro is not None:
        from spark_cas import schema_registry  # needs packages of an extra

        rows = schema_registry.encode(rows, subject=request.value_avro, registry=dict(request.registry))
    _require_types(rows)
    return rows


def _source_text(frame: "DataFrame", positions: Sequence[str]) -> "Column":
    """Return the row as text: the document, or a JSON object of its columns."""
    if DOCUMENT in frame.columns:
        return F.col(DOCUMENT).cast("string")
    columns = [F.col(quoted(each)) for each in frame.columns if each not in positions]
    return F.to_json(F.struct(*columns), dict(JSON_OPTIONS))


def rows_in_footers(spark: "SparkSession", request: LoadRequest, files: Sequence[InputFile]) -> int | None:
    """Return the rows of Parquet or ORC files by their footers; None for other formats.

    The readers of other formats compare their rows and files with independent counts in each task.
    """
    is_columnar = request.query is None and request.format in ("parquet", "orc")
    return footer_rows(spark, files, request.format) if is_columnar and files else None


def has_rows(
    spark: "SparkSession", request: LoadRequest, files: Sequence[InputFile], rows: "DataFrame", in_footers: int | None
) -> bool:
    """Return whether the input has a row. ``in_footers`` is the result of `rows_in_footers`.

    Footers, or the first lines of a text file, nearly always prove it, and no Python worker runs. `DataFrame.isEmpty`
    ends its workers while they send rows. They print tracebacks, and the next job has to start new ones.
    """
    return bool(in_footers) or _begins_with_row(spark, request, files) or not rows.isEmpty()


def _begins_with_row(spark: "SparkSession", request: LoadRequest, files: Sequence[InputFile]) -> bool:
    """Return whether the first lines of the first text file prove that it has a row."""
    file = next((each for each in files if each.size), None)
    if request.query is not None or request.format not in ("csv", "json", "text") or file is None:
        return False
    options = {name.lower(): value for name, value in request.read_options}
    encoding = encoding_name(options.get("encoding", options.get("charset", UTF_8)))
    if not keeps_line_ends(encoding) or (request.format == "json" and options.get("multiline", "false") != "false"):
        return False
    data, _ = first_lines(spark, file, _FIRST_LINES)
    data = data.removeprefix(BOM_UTF8)
    if request.format != "csv":
        return any(line.strip(b" \t\r") for line in data.split(b"\n"))
    dialect = parse_csv_options(dict(request.read_options))[0]
    records, _ = CsvText(data, dialect).records()
    return not dialect.comment and len(records) > dialect.header


@contextmanager
def wrong_call() -> "Iterator[None]":
    """Convert Spark's error for an expression or input that it cannot analyze to UsageError."""
    try:
        yield
    except AnalysisException as error:
        raise UsageError(_OWN_COLUMN.sub("", in_short(error))) from error


def input_settings(spark: "SparkSession", request: LoadRequest, files: Sequence[InputFile]) -> dict[str, str]:
    """Return the settings of Spark that the plan of the input needs, besides the pinned ones."""
    options = {name.lower(): value.lower() for name, value in request.read_options}
    if request.format == "orc":
        return ORC_SETTINGS
    if request.format == "csv":
        dialect = parse_csv_options(dict(request.read_options))[0]
        # The task that reads a whole file detects a byte order mark of UTF-8 in another encoding.
        whole = dialect.multi_line or dialect.encoding != UTF_8
    else:
        encoded = options.get("encoding", options.get("charset", "utf-8")) != "utf-8"
        whole = request.format in ("json", "text") and (encoded or options.get("multiline") == "true")
    return whole_file_settings(files, _parallelism(spark)) if whole else {}


def _parallelism(spark: "SparkSession") -> int:
    if is_remote():
        return int(str(spark.conf.get("spark.sql.shuffle.partitions")))  # the client cannot see cores
    return spark.sparkContext.defaultParallelism


def _read(spark: "SparkSession", request: LoadRequest, files: Sequence[InputFile]) -> "tuple[DataFrame, list[str]]":
    """Return the columns of the input, and the names of those that hold the position of a row."""
    if request.query is not None:
        return spark.sql(request.query), []
    options = dict(request.read_options)
    if request.format in ("parquet", "orc"):
        return columnar_rows(spark, files, request.format, options)
    if not files:
        return spark.createDataFrame([], request.schema or "value STRING"), []
    if request.format in ("avro", "binary"):
        ReadOptions(options, ())
        frame = avro_rows(spark, files) if request.format == "avro" else binary_rows(spark, files)
        return with_folder_columns(spark, frame, files), list(POSITION_COLUMNS)
    if compressed := checked_files(files):
        with pinned_settings(spark, whole_file_settings(compressed, _parallelism(spark))):
            require_complete(spark, compressed)
    if request.format == "csv":
        frame = csv_rows(spark, files, request.schema, options, with_bad=request.bad_rows is not None)
    elif request.format == "json":
        frame = _json(spark, request, files)
    else:
        frame = text_rows(spark, files, options)
    return with_folder_columns(spark, frame, files), list(POSITION_COLUMNS)


def _json(spark: "SparkSession", request: LoadRequest, files: Sequence[InputFile]) -> "DataFrame":
    """Return the documents, with the columns that the expressions of the request use."""
    path = [request.key] if _is_json_path(request) and request.key is not None else []
    others = (request.value, request.value_avro, request.timestamp, *request.headers, *request.order_by)
    uses_fields = any(others) or not (path or request.key is None)
    options = dict(request.read_options)
    with_bad = request.bad_rows is not None
    return json_rows(spark, files, request.schema, options, paths=path, with_columns=uses_fields, with_bad=with_bad)


def _is_json_path(request: LoadRequest) -> bool:
    return request.format == "json" and request.key is not None and request.key.startswith("$")


def _key(request: LoadRequest, frame: "DataFrame") -> "Column":
    if request.key is None:
        key = F.lit(None).cast("string")
    elif _is_json_path(request):
        key = F.col(quoted(request.key))
    else:
        key = _expression(request, frame, "--key", request.key)
    return key.alias("key")


def _value(request: LoadRequest, frame: "DataFrame", positions: Sequence[str]) -> "Column":
    expression = request.value_expression
    if expression is not None:
        value = _expression(request, frame, "--value", expression)
    elif request.value_avro is not None:
        added = {DOCUMENT, *positions, *([request.key] if _is_json_path(request) else [])}
        value = F.struct(*(F.col(quoted(name)) for name in frame.columns if name not in added))
    else:
        value = F.col(DOCUMENT) if request.format == "json" else row_json(frame, positions)
    if not request.tombstones and request.bad_rows is None:
        missing = F.raise_error(
            F.lit(
                "a row has a null value, which would delete its key. Nothing was appended. Add --tombstones to "
                "delete keys, or change --value."
            )
        )
        value = F.when(value.isNull(), missing).otherwise(value)
    return value.alias("value")


def _expression(request: LoadRequest, frame: "DataFrame", argument: str, text: str) -> "Column":
    """Return the column of a SQL expression.

    Raises UsageError if the column may differ in a rerun, or changes the number of rows. Rows without a key are
    placed by their content, so other values would append them twice. Also raises it for `*`, if this includes the
    columns of positions.
    """
    code = _NO_STAR.sub("''", text)
    if request.query is None and _STAR.search(code):
        raise UsageError(
            f"{argument}: `*` would include columns that a load adds. Nothing was appended. Name the columns, or use "
            f"--value-json, which has all columns of the input."
        )
    column = F.expr(text)
    try:
        # Within count(), Spark rejects random values, generators, aggregates and window functions.
        (resolved,) = frame.select(F.count(column)).columns
    except AnalysisException as error:
        _ = frame.select(column).columns  # if the expression itself is invalid, this raises
        raise _unstable(argument) from error
    # Spark regards the time and the user as constant. The name of the column has each function that it resolved.
    moving = text if _TIME_TYPE.search(f"{text} {frame.schema.simpleString()}") else ""
    checks = ((_VARIES, resolved), (_VARIES, code), (_TIME_WINDOW, code), (_MOVING_TIME, moving))
    if match := next(filter(None, (pattern.search(each) for pattern, each in checks)), None):
        # Without the arguments, which may contain a key.
        raise _unstable(argument, match[0].partition("(")[0].split("'")[0])
    return column


def _unstable(argument: str, function: str = "") -> UsageError:
    culprit = f": {function.strip()} does not" if function else ""
    return UsageError(
        f"{argument}: an expression must give one value for each row, and the same in a rerun{culprit}. Nothing was "
        f"appended. Use columns and constants, such as timestamp'2026-11-30 00:00:00', without the current time or "
        f"user, random values, input_file_name(), generators, aggregates and windows."
    )


def _headers(request: LoadRequest, frame: "DataFrame") -> "list[Column]":
    if not request.headers:
        return []
    values = [(name, _expression(request, frame, "--header", text)) for name, text in request.headers]
    columns = [F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value")) for name, value in values]
    return [F.array(*columns).alias("headers")]


def _timestamp(request: LoadRequest, frame: "DataFrame") -> "list[Column]":
    if request.timestamp is None:
        return []
    time = _expression(request, frame, "--timestamp", request.timestamp)
    if request.bad_rows is not None:
        return [time.alias("timestamp")]
    missing = F.raise_error(
        F.lit(
            "--timestamp is null in a row. Nothing was appended. Add a constant default, such as coalesce(..., "
            "timestamp'2026-11-30 00:00:00')."
        )
    )
    inexact = F.raise_error(
        F.lit(
            "--timestamp has microseconds in a row, and the log keeps milliseconds. Nothing was appended. Use "
            "date_trunc('millisecond', ...) to cut it."
        )
    )
    return [F.when(time.isNull(), missing).when(has_microseconds(time), inexact).otherwise(time).alias("timestamp")]


def _require_types(rows: "DataFrame") -> None:
    for field in rows.schema:
        if field.name in ("key", "value") and not isinstance(field.dataType, StringType | BinaryType):
            name = field.dataType.simpleString()
            fix = "Cast it, or use --value-json or to_json(...)" if field.name == "value" else "Cast it to string"
            raise UsageError(f"--{field.name} must be a string or binary expression, found {name}. {fix}.")
        if field.name == "timestamp" and not isinstance(field.dataType, TimestampType):
            raise UsageError(
                f"--timestamp must be of type timestamp, found {field.dataType.simpleString()}. Cast it."
            )


def _order(request: LoadRequest) -> Iterator[tuple[str, str, bool]]:
    """Yield the column and the expression of each ``--order-by``, and whether the order is descending."""
    for number, text in enumerate(request.order_by):
        match = _DIRECTION.fullmatch(text)
        falls = match is not None and match["direction"].lower() == "desc"
        yield f"{_ORDER}{number}", match["expression"] if match else text, falls


_NO_VALUE = "SQL_CONF_NOT_FOUND"
"""Error condition of Spark for a setting without a value. This version may not know the setting."""


_SETTINGS = (resources.files(__package__) / "session_settings.txt").read_text(encoding="utf-8").splitlines()
PINNED: Mapping[str, str] = MappingProxyType(
    {
        f"spark.sql.{name}": value
        for name, value in filter(None, (line.partition("#")[0].split() for line in _SETTINGS))
    }
)
"""Each pinned setting and its value during a load. The file has the effect of each."""


@contextmanager
def pinned_settings(spark: "SparkSession", extra: Mapping[str, str] = MappingProxyType({})) -> Iterator[None]:
    """Set all settings of `PINNED` and ``extra`` within the context, and restore the previous values after it.

    A job may resume in another session, so the bytes of a row must not depend on the session. SQL expressions of a
    load therefore run in UTC: ``date_format(ts, 'HH')`` is the hour in UTC, and a timestamp text without a zone is
    UTC.

    Spark resolves a DataFrame when it is built and when it runs, so both must be within the context. Other threads
    that use the same session see the pinned values too. A setting is skipped if it has no value and the session
    rejects it as unknown. Raises UsageError if the session does not permit a change of a setting; all settings are
    restored first.
    """
    explicit = spark.conf.getAll
    changed: list[str] = []
    try:
        for name, value in {**PINNED, **extra}.items():
            current = _current(spark, name)
            if current == value:
                continue
            try:
                with catch_warnings(action="ignore"):  # Connect warns about deprecated settings
                    spark.conf.set(name, value)
            except PySparkException as error:
                if current is None:
                    continue
                raise UsageError(
                    f"the session does not allow {name} to be changed: it is {current!r}, and a load needs "
                    f"{value!r}. Nothing was appended. Set it where the session is configured."
                ) from error
            changed.append(name)
        yield
    finally:
        for name in changed:
            if name in explicit:
                with catch_warnings(action="ignore"):  # as above
                    spark.conf.set(name, explicit[name])
            else:
                spark.conf.unset(name)


def _current(spark: "SparkSession", name: str) -> str | None:
    """Return the value of a setting; None if it has none, or if this version of Spark does not know it."""
    try:
        return spark.conf.get(name)
    except PySparkException as error:
        if error.getCondition() != _NO_VALUE:
            raise
        return None
