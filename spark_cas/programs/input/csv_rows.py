"""CSV files as a DataFrame. Each value is exact, or the load is rejected."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_cas.core.errors import UnreadableInputError
from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.csv_blocks import READ_WHOLE, CsvBlock, CsvBlocks, first_record
from spark_cas.programs.input.csv_dialect import CsvDialect, parse_csv_options
from spark_cas.programs.input.parts import Part, shown
from spark_cas.programs.input.text_files import InputFile, first_lines, parsed_schema, read_lines
from spark_cas.programs.input.time_patterns import PLACE, text_fields, with_parsed_times
from spark_cas.programs.input.typed_text import NumberFormat, TextColumn, first_wrong, text_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FIRST_LINES = (1, 100, 10_000)
_LANGUAGE_TAG = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*")
_DECIMAL_SIGNS = ".,"
_GROUPING_SIGNS = ",.'\u2019 \u00a0\u202f"


@dataclass(frozen=True, slots=True)
class _Format:
    """Settings of a task that reads a part."""

    dialect: CsvDialect
    columns: tuple[TextColumn, ...]
    header: tuple[str, ...] | None
    """Header that each file must have; None accepts any header."""
    with_place: bool
    """Whether rows include their file and line, for errors that Spark raises later."""


def csv_rows(
    spark: "SparkSession", files: Sequence[InputFile], schema: str | None, read_options: Mapping[str, str]
) -> "DataFrame":
    """Return the rows of CSV files, with the columns `FILE` and `POSITION`.

    Unless the read option `multiLine` is false, run the plan under `whole_file_settings`.

    Args:
        spark: the session, classic or Connect
        files: all files of the input, in the order of their rows
        schema: names and types of the columns in SQL; None takes the header of the first file, and all as text
        read_options: options of Spark's CSV reader

    Raises:
        UsageError: for an option or a type that cannot be honoured
        UnreadableInputError: for a first file without a header that can be used; from tasks for any bad content
    """
    from pyspark.sql.types import StringType, StructField, StructType

    dialect, formats = parse_csv_options(read_options)
    if schema is None:
        header = _first_record(spark, files, dialect)
        names = _column_names(header, files[0].path) if dialect.header else _generated_names(len(header))
        fields = StructType([StructField(name, StringType()) for name in names])
    else:
        fields = parsed_schema(schema)
        header = fields.names
    numbers = _number_format(spark, formats.locale) if formats.locale else None
    result = text_fields(fields, formats)
    has_pattern = result != fields
    columns = tuple(
        replace(column, kind="string") if formats.pattern(column.kind) else column
        for column in (text_column(field, formats, numbers) for field in fields)
    )
    task = _Format(dialect, columns, None if dialect.by_place else tuple(header), has_pattern)
    place = [StructField(PLACE, StringType())] if has_pattern else []
    rows = read_lines(spark, files, partial(_CsvReader, task=task), StructType([*result, *place]))
    return with_parsed_times(rows, fields, formats) if has_pattern else rows


class _CsvReader:
    """Reader of one part of a CSV file in a task."""

    def __init__(self, part: Part, task: _Format) -> None:
        self._part = part
        self._format = task
        self._blocks = CsvBlocks(part, task.dialect, len(task.columns), task.header)

    def feed(self, data: bytes) -> Iterator[pa.RecordBatch]:
        return map(self._batch, self._blocks.feed(data))

    def finish(self) -> Iterator[pa.RecordBatch]:
        return map(self._batch, self._blocks.finish())

    def _batch(self, block: CsvBlock) -> pa.RecordBatch:
        batch = _typed_batch(block, self._format.columns, self._part)
        if not self._format.with_place:
            return batch
        places = pa.array([self._part.place(block.line(record)) for record in range(batch.num_rows)])
        return batch.append_column(PLACE, places)


def _typed_batch(block: CsvBlock, columns: Sequence[TextColumn], part: Part) -> pa.RecordBatch:
    """Return the records of a block as typed values. Raises UnreadableInputError for a value that is not exact."""
    [batch] = block.records.combine_chunks().to_batches()
    values = []
    for column, text in zip(columns, batch.columns, strict=True):
        if not column.nullable and text.null_count:
            record = text.to_pylist().index(None)
            raise part.error(
                f"column {shown(column.name)}: a value is absent, and the schema has NOT NULL",
                "Add the value, or remove NOT NULL from --schema",
                line=block.line(record),
            )
        try:
            values.append(column.values(text))
        except ValueError:
            record = first_wrong(text, column)
            raise part.error(
                f"column {shown(column.name)}: {shown(text[record].as_py())} is not exactly a {column.type}",
                column.fix(),
                line=block.line(record),
            ) from None
    return pa.RecordBatch.from_arrays(values, names=[each.name for each in columns])


def _first_record(spark: "SparkSession", files: Sequence[InputFile], dialect: CsvDialect) -> list[str]:
    """Return the values of the first record of the first file that has one."""
    for file in files:
        for lines in _FIRST_LINES:
            data, is_whole = first_lines(spark, file, lines)
            record = first_record(Part(file.path), dialect, data, is_whole=is_whole)
            if record is not None:
                return record
            if is_whole:
                break
        else:
            if not dialect.multi_line:
                raise Part(file.path).error("the first lines that Spark splits off have no record", READ_WHOLE)
            raise Part(file.path).error(
                f"the first {_FIRST_LINES[-1]} lines have no whole record",
                "Check the read options quote and escape, or give --schema",
                line=1,
            )
    raise UnreadableInputError(
        f"{files[0].path}: the file has no header and no record. Give the columns as --schema, or remove the file."
    )


def _column_names(header: Sequence[str], path: str) -> list[str]:
    names = [name or f"_c{number}" for number, name in enumerate(header)]
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise Part(path).error(
            f"the header has the column {shown(twice)} twice",
            "Give other names with --schema and --read-option enforceSchema=true, which takes columns by their place",
            line=1,
        )
    return names


def _generated_names(count: int) -> list[str]:
    return [f"_c{number}" for number in range(count)]


def _number_format(spark: "SparkSession", locale: str) -> NumberFormat:
    """Return the number format of a locale, as Spark's own CSV reader uses it."""
    from pyspark.sql import functions as F  # noqa: N812

    if _LANGUAGE_TAG.fullmatch(locale) is None:
        # Java silently uses the English format for invalid tags, such as de_DE.
        raise UsageError(f"read option locale: {locale!r} is no language tag; expected one such as de-DE.")
    options = {"locale": locale, "sep": "\x01", "quote": "", "mode": "PERMISSIVE"}

    def parsed(text: str) -> "Column":
        return F.from_csv(F.lit(text), "d decimal(20,5)", options)["d"]

    points = [parsed(f"1{sign}5") == F.lit("1.5").cast("decimal(20,5)") for sign in _DECIMAL_SIGNS]
    groups = [parsed(f"1{sign}234") == F.lit("1234").cast("decimal(20,5)") for sign in _GROUPING_SIGNS]
    [row] = spark.range(1).select(*points, *groups).collect()
    point = next((sign for sign, works in zip(_DECIMAL_SIGNS, row, strict=False) if works), None)
    group = next((s for s, works in zip(_GROUPING_SIGNS, row[len(_DECIMAL_SIGNS) :], strict=True) if works), None)
    if point is None or group is None:
        raise UsageError(f"read option locale: the numbers of {locale!r} are not known; expected one such as de-DE.")
    return NumberFormat(point, group)
