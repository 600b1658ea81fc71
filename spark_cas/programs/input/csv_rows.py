r"""Split CSV into blocks of complete records, check quoting strictly (RFC 4180), and parse the blocks.

A line ends with `\n`, `\r\n` or a single `\r`. A line end outside of quotes ends the record. Empty records are
skipped. Values keep each byte, including line ends and NUL in quotes. An unquoted empty value is absent (null); `""`
is an empty text.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it
from pyspark.sql import types as T  # noqa: N812 - Spark's own name for it

from spark_cas.core.errors import UnreadableInputError
from spark_cas.core.input_list import InputFile
from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.csv_text import CsvDialect, CsvText, Positions, parse_csv_options, record_values
from spark_cas.programs.input.exact_values import (
    PLACE,
    NumberFormat,
    TextColumn,
    text_column,
    text_fields,
    with_parsed_times,
    wrong_values,
)
from spark_cas.programs.input.parts import (
    BAD,
    Part,
    decoded,
    require_free_names,
    require_utf8,
    require_whole_file,
    shown,
    text_pieces,
)
from spark_cas.programs.input.spark_files import first_lines, parsed_schema, read_lines

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_BLOCK_BYTES = 512 * 1024
_LINE_FEED = 10
_BOM = b"\xef\xbb\xbf"

READ_WHOLE = "Remove the lines before it, or give --read-option multiLine=true, which reads the file in one task"
_QUOTING = (
    "Quote the whole value and double each quote in it, or give the read option escape, or quote= for no quotes"
)
_FIRST_LINES = (1, 100, 10_000)
_LANGUAGE_TAG = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*")
_DECIMAL_SIGNS = ".,"
_GROUPING_SIGNS = ",.'\u2019 \u00a0\u202f"


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """Settings of a task that reads a part."""

    dialect: CsvDialect
    columns: tuple[TextColumn, ...]
    header: tuple[str, ...] | None = None
    """Header that each file must have; None accepts any header."""
    with_place: bool = False
    """Whether rows include their file and line, for errors that Spark raises later."""
    with_bad: bool = False
    """Whether the result includes bad rows, in the column `BAD`."""


class CsvReader:
    """Reader of one part of a CSV file in a task."""

    def __init__(self, part: Part, task: CsvFormat, block_bytes: int = _BLOCK_BYTES) -> None:
        dialect = task.dialect
        require_whole_file(part, whole=dialect.multi_line)
        self._part = part
        self._dialect = dialect
        self._format = task
        self._header_is_next = dialect.header and part.start == 0
        self._block_bytes = block_bytes
        self._lines = 0
        names = [str(number) for number in range(len(task.columns))]
        self._parse = pc.ParseOptions(
            delimiter=dialect.separator,
            quote_char=dialect.quote or False,
            newlines_in_values=True,
            invalid_row_handler=self._reject_row,
        )
        self._convert = pc.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=list({"", dialect.null}),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            check_utf8=False,  # the whole block is checked
        )
        self._names = names
        self._short: list[tuple[int, int]] = []
        """Number and columns of each record of a block with a wrong number of values."""

    def rows(self, pieces: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
        """Yield blocks of the records of the part, whose bytes arrive in pieces."""
        collected: list[bytes] = []
        size, enough = 0, self._block_bytes
        for data in self._decoded(pieces):
            collected.append(data)
            size += len(data)
            if size >= enough:
                text = CsvText(self._without_comments(b"".join(collected), final=False), self._dialect)
                end = text.last_record_end()
                collected = [text.data[end:]]
                size = len(collected[0])
                # Search a record that exceeds a block again only after its size has doubled.
                enough = max(self._block_bytes, 2 * size)
                if end:
                    yield from self._records(text.head(end))
        text = CsvText(self._without_comments(b"".join(collected), final=True), self._dialect)
        if text.data:
            yield from self._records(text)
        if self._header_is_next and not self._part.is_last:
            # The reader of the next part cannot detect that the part begins with the header.
            raise self._part.error("Spark split the file before its header", READ_WHOLE)

    def first_record(self, data: bytes, *, is_whole: bool) -> list[str] | None:
        """Return the values of the first record of a file; None if ``data`` does not contain all of it."""
        whole = b"".join(self._decoded([data], has_end=is_whole))
        text = CsvText(self._without_comments(whole, final=is_whole), self._dialect)
        text = self._plain(text.head(len(text.data) if is_whole else text.last_record_end()))
        starts, ends = text.records()
        if not len(starts):
            return None
        text = text.head(int(ends[0]))
        require_utf8(self._part, text.data, text.line_at)
        self._check_quotes(text)
        return record_values(text.data[starts[0] :], self._dialect)

    def _decoded(self, pieces: Iterable[bytes], *, has_end: bool = True) -> Iterator[bytes]:
        return decoded(self._part, text_pieces(self._part, pieces, "CSV"), self._dialect.encoding, has_end=has_end)

    def _records(self, raw: CsvText) -> Iterator[pa.RecordBatch]:
        require_utf8(self._part, raw.data, lambda offset: self._lines + raw.line_at(offset))
        self._check_line_breaks(raw)
        text = self._plain(raw)
        self._check_quotes(text)
        starts, ends = text.records()
        if self._header_is_next and len(starts):
            self._header_is_next = False
            self._check_header(text.data[starts[0] : ends[0]], self._lines + text.line_at(starts[0]))
            self._lines += text.line_at(ends[0]) - 1
            text = CsvText(text.data[ends[0] :], self._dialect, escaped=False)
            starts, ends = text.records()
        if len(starts):
            yield self._batch(text, starts, ends)
        self._lines += len(text.line_ends)

    def _batch(self, text: CsvText, starts: Positions, ends: Positions) -> pa.RecordBatch:
        """Return records as typed values. Raises UnreadableInputError for a value that is not exact."""
        bad: dict[int, str] = {}

        def line(record: int) -> int:
            return self._lines + text.line_at(int(starts[record]))

        def reject(record: int, problem: str, fix: str) -> None:
            if not self._format.with_bad:
                raise self._part.error(problem, fix, line=line(record)) from None
            bad[record] = problem

        table = self._parsed(text, starts)
        for record, columns in self._short:
            problem = f"expected {len(self._names)} columns, found {columns}"
            reject(record, problem, "Check the file, and the read options sep and quote")
        records = np.delete(np.arange(len(starts)), [*bad])
        [batch] = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
        values = self._values(batch, lambda at, *reason: reject(int(records[at]), *reason))
        if len(bad) > len(self._short):
            valid = np.flatnonzero(~np.isin(records, [*bad]))
            batch, records = batch.take(pa.array(valid)), records[valid]
            values = self._values(batch, reject)
        names = [each.name for each in self._format.columns]
        if self._format.with_place:
            names.append(PLACE)
            values.append(pa.array([self._part.place(line(record)) for record in records.tolist()], pa.string()))
        result = pa.RecordBatch.from_arrays(values, names=names)
        if not self._format.with_bad:
            return result
        texts_of_bad = ((each, text.data[starts[each] : ends[each]].decode()) for each in bad)
        return self._part.with_bad_rows(result, [(line(each), bad[each], source) for each, source in texts_of_bad])

    def _values(self, batch: pa.RecordBatch, reject: Callable[[int, str, str], None]) -> list[pa.Array]:
        """Return the typed values of each column. If a column has a rejected value, the result is incomplete."""
        values = []
        for column, texts in zip(self._format.columns, batch.columns, strict=True):
            if not column.nullable and texts.null_count:
                problem = f"column {shown(column.name)}: a value is absent, and the schema has NOT NULL"
                for each in np.flatnonzero(texts.is_null()).tolist():
                    reject(each, problem, "Add the value, or remove NOT NULL from --schema")
            try:
                values.append(column.values(texts))
            except ValueError:
                for each in wrong_values(texts, column):
                    value = shown(texts[each].as_py())
                    reject(each, f"column {shown(column.name)}: {value} is not exactly a {column.type}", column.fix())
        return values

    def _parsed(self, text: CsvText, starts: Positions) -> pa.Table:
        # Add an empty line, which the parser skips. Otherwise it would remove a byte order mark here.
        data = b"\n" + text.data if text.data.startswith(_BOM) else text.data
        # If the last value is absent, the one before is quoted, and no line end follows, pyarrow 26 reads it as
        # quoted.
        data = data if data.endswith((b"\n", b"\r")) else data + b"\n"
        options = pc.ReadOptions(use_threads=False, column_names=self._names, block_size=len(data) + 1)
        self._short = []
        table = pc.read_csv(
            pa.BufferReader(data), read_options=options, parse_options=self._parse, convert_options=self._convert
        )
        if table.num_rows + len(self._short) != len(starts):
            raise self._part.error(
                f"{len(starts)} records were counted, and {table.num_rows} parsed",
                "This is a defect of spark_cas: report it, with the file if possible",
                line=self._lines + 1,
            )
        return table

    def _reject_row(self, row: pc.InvalidRow) -> str:
        self._short.append((row.number - 1, row.actual_columns))
        return "skip"

    def _check_header(self, record: bytes, line: int) -> None:
        if self._format.header is None:
            return
        header = record_values(record, self._dialect)
        if header != list(self._format.header):
            raise self._part.error(
                header_difference(header, self._format.header),
                "Load files with different headers one by one, or give --read-option enforceSchema=true to take "
                "columns by their place",
                line=line,
            )

    def _check_line_breaks(self, text: CsvText) -> None:
        if self._dialect.multi_line:
            return
        inside = text.line_ends[~text.outside]
        inside = inside[text.bytes[inside] == _LINE_FEED]
        if len(inside):
            problem = "a quoted value has a line break, or a quote is not closed"
            fix = "Give --read-option multiLine=true, or close the quote"
            raise self._error(text, int(inside[0]), problem, fix)

    def _check_quotes(self, text: CsvText) -> None:
        wrong = text.wrong_quote() if len(text.quotes) else None
        if wrong is not None:
            raise self._error(text, wrong, "a quote is inside of an unquoted value, or text follows a closing quote")
        if len(text.quotes) % 2:
            raise self._error(text, int(text.quotes[-1]), "a quote is not closed")

    def _error(self, text: CsvText, offset: int, problem: str, fix: str = _QUOTING) -> UnreadableInputError:
        return self._part.error(problem, fix, line=self._lines + text.line_at(offset))

    def _without_comments(self, data: bytes, *, final: bool) -> bytes:
        """Replace comment lines with empty lines, which are skipped."""
        comment = self._dialect.comment.encode()
        if not comment or not any(data.startswith(comment) or end + comment in data for end in (b"\n", b"\r")):
            return data
        kept = []
        inside = False
        for line in data.splitlines(keepends=True):
            is_whole = final or line.endswith((b"\n", b"\r"))
            if not inside and is_whole and line.startswith(comment):
                kept.append(line[len(line.rstrip(b"\r\n")) :])
                continue
            kept.append(line)
            inside ^= bool(len(CsvText(line, self._dialect).quotes) % 2)
        return b"".join(kept)

    def _plain(self, text: CsvText) -> CsvText:
        """Convert escapes and spaces to the form of RFC 4180."""
        if self._dialect.escapes and self._dialect.escape.encode() in text.data:
            wrong = text.wrong_escape()
            if wrong is not None:
                raise self._error(text, wrong, "an escaped quote is outside of a quoted value")
            text = CsvText(text.with_doubled_quotes(), self._dialect, escaped=False)
        if self._dialect.strip_leading or self._dialect.strip_trailing:
            text = CsvText(text.stripped(), self._dialect, escaped=False)
        return text


def header_difference(header: Sequence[str], expected: Sequence[str]) -> str:
    """Describe the first difference between two headers."""
    if len(header) != len(expected):
        return f"expected {len(expected)} columns, the header has {len(header)}"
    column, (actual, name) = next(
        (column, pair) for column, pair in enumerate(zip(header, expected, strict=True), 1) if pair[0] != pair[1]
    )
    return f"column {column} of the header: expected {shown(name)}, found {shown(actual)}"


def csv_rows(
    spark: "SparkSession",
    files: Sequence[InputFile],
    schema: str | None,
    read_options: Mapping[str, str],
    *,
    with_bad: bool = False,
) -> "DataFrame":
    """Return the rows of CSV files, with the columns `FILE` and `POSITION`.

    Unless the read option `multiLine` is false, run the plan under `whole_file_settings`.

    Args:
        files: all files of the input, in the order of their rows
        schema: names and types of the columns in SQL; None takes the header of the first file, and all as text
        read_options: options of Spark's CSV reader
        with_bad: whether to return rows with a wrong number of values, or with a value that its type cannot keep, in
          the column `BAD`. Otherwise they raise an error.

    Raises:
        UsageError: for an option or a type that is not supported
        UnreadableInputError: for a first file without a header that can be used; from tasks for any bad content
    """
    dialect, formats = parse_csv_options(read_options)
    if schema is None:
        header = _first_record(spark, files, dialect)
        names = _column_names(header if dialect.header else [""] * len(header), files[0].path)
        fields = T.StructType([T.StructField(name, T.StringType()) for name in names])
    else:
        fields = parsed_schema(schema)
        header = fields.names
    require_free_names(fields.names)
    numbers = _number_format(spark, formats.locale) if formats.locale else None
    result = text_fields(fields, formats)
    has_pattern = result != fields
    columns = tuple(
        replace(column, kind="string") if formats.pattern(column.kind) else column
        for column in (text_column(field, formats, numbers) for field in fields)
    )
    task = CsvFormat(dialect, columns, None if dialect.by_place else tuple(header), has_pattern, with_bad)
    added = [T.StructField(name, T.StringType()) for name, used in ((PLACE, has_pattern), (BAD, with_bad)) if used]
    columns_of_task = [T.StructField(each.name, each.dataType, each.nullable or with_bad) for each in result]
    task_schema = T.StructType([*columns_of_task, *added])
    rows = read_lines(spark, files, lambda part, pieces: CsvReader(part, task).rows(pieces), task_schema)
    return with_parsed_times(rows, fields, formats) if has_pattern else rows


def _first_record(spark: "SparkSession", files: Sequence[InputFile], dialect: CsvDialect) -> list[str]:
    """Return the values of the first record of the first file that has one."""
    for file in files:
        for lines in _FIRST_LINES:
            data, is_whole = first_lines(spark, file, lines)
            record = CsvReader(Part(file.path), CsvFormat(dialect, ())).first_record(data, is_whole=is_whole)
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


def _number_format(spark: "SparkSession", locale: str) -> NumberFormat:
    """Return the number format of a locale, as Spark's own CSV reader uses it."""
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
