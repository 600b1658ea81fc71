"""JSON documents as a DataFrame: the original bytes of each document, and columns for SQL expressions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_cas.core.errors import UnreadableInputError
from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.decoding import UTF_8, LineDecoder, encoding_name, keeps_line_ends, require_whole_file
from spark_cas.programs.input.json_documents import (
    Json,
    Step,
    beyond_limits,
    documents_of,
    parse_line,
    parse_path,
    text_at,
)
from spark_cas.programs.input.json_fields import FieldError, field_converter, missing_fields
from spark_cas.programs.input.parts import Part, count_filled_lines, require_text, shown
from spark_cas.programs.input.read_options import TIME_OPTIONS, ReadOptions, ValueFormats
from spark_cas.programs.input.text_files import InputFile, parsed_schema, quoted, read_lines
from spark_cas.programs.input.time_patterns import PLACE, text_fields, with_parsed_times

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

DOCUMENT = "_input_document"
"""Column with the bytes of the document in UTF-8."""
_NO_FIELD = "_input_corrupt"
"""Name that no field has. Spark's reader returns null for a field with the name of the corrupt record."""
_NAMES = ("encoding", "multiLine", "mode", *TIME_OPTIONS)
_FIX = "Correct the document, or remove it"
_FIX_LINE = f"{_FIX}; if documents have several lines, give --read-option multiLine=true"
_FIX_FIELD = "Correct the document, or use a type in --schema that holds it, such as STRING"
_FIX_LIMIT = "Give the key and the value as paths such as '$.customer.id', or shorten the document"
_SPACES = " \t\r"


@dataclass(frozen=True, slots=True)
class _Format:
    """Settings of a task that reads a part."""

    encoding: str
    multi_line: bool
    schema: "StructType | None"
    is_inferred: bool
    formats: ValueFormats
    paths: tuple[tuple[str, tuple[Step, ...]], ...]
    with_columns: bool


def json_rows(
    spark: "SparkSession",
    files: Sequence[InputFile],
    schema: str | None,
    read_options: Mapping[str, str],
    *,
    paths: Sequence[str] = (),
    with_columns: bool = True,
) -> "DataFrame":
    """Return the documents of JSON files: fields, paths, and the columns `DOCUMENT`, `FILE` and `POSITION`.

    With the read option `multiLine` or another encoding than UTF-8, run the plan under `whole_file_settings`.

    Args:
        spark: the session, classic or Connect
        files: all files of the input, in the order of their rows
        schema: names and types of the fields in SQL; None takes those of all documents, and scalars as their text
        read_options: options of Spark's JSON reader; without `multiLine` each line is a document
        paths: values of the documents to return as columns, see `json_path_column`
        with_columns: whether fields are returned as columns. Without them no file is read to infer a schema

    Raises:
        UsageError: for an option, a path or a type that cannot be honoured
        UnreadableInputError: for a field of the schema that no document has; from tasks for any bad content
    """
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    read = ReadOptions(read_options, _NAMES, {"charset": "encoding"})
    read.require_fail_fast()
    formats = read.value_formats()
    encoding = encoding_name(read.text("encoding", UTF_8))
    multi_line = read.flag("multiLine", default=False)
    steps = tuple((path, tuple(_steps(path))) for path in dict.fromkeys(paths))
    task = _Format(encoding, multi_line, None, schema is None, formats, steps, with_columns)
    columns = [StructField(path, StringType()) for path, _ in steps]
    task_schema = StructType([*columns, StructField(DOCUMENT, BinaryType(), nullable=False)])
    count = count_filled_lines if keeps_line_ends(encoding) and not multi_line else None
    rows = read_lines(spark, files, partial(_JsonReader, task=task), task_schema, count)
    if not with_columns:
        return rows
    if schema is not None:
        field_converter(parsed_schema(schema), formats, scalars_only=False)  # reject unsupported types
    fields = _fields(spark, rows, schema, files)
    used = {name.lower() for name in (*rows.columns, PLACE)} & {name.lower() for name in fields.names}
    if used:
        raise UsageError(f"the documents have a field {shown(min(used))}, which a load adds itself: rename it.")
    result = StructType([*text_fields(fields, formats), *task_schema, StructField(PLACE, StringType())])
    rows = read_lines(spark, files, partial(_JsonReader, task=replace(task, schema=fields)), result, count)
    return with_parsed_times(rows, fields, formats)


def json_path_column(path: str) -> "Column":
    """Return the column of a path in the result of `json_rows`: the exact text of the value at `$.customer.id`.

    A string has no quotes and escapes. A number, object or array is as in the document, and null is null.
    """
    return _column(path)


class _JsonReader:
    """Reader of one part of a JSON file in a task."""

    def __init__(self, part: Part, task: _Format) -> None:
        require_whole_file(part, task.encoding, whole=task.multi_line)
        self._part = part
        self._format = task
        self._decoder = LineDecoder(part, task.encoding)
        self._pieces: list[bytes] = []
        self._columns_of = None
        if task.schema is not None:
            self._columns_of = field_converter(task.schema, task.formats, scalars_only=task.is_inferred)

    def feed(self, data: bytes) -> Iterator[pa.RecordBatch]:
        if self._part.start == 0 and not self._decoder.lines:
            require_text(self._part, data, "JSON")
        yield from self._batches(self._decoder.feed(data))

    def finish(self) -> Iterator[pa.RecordBatch]:
        yield from self._batches(self._decoder.finish())
        if self._format.multi_line:
            yield from self._whole_file(b"".join(self._pieces).decode())

    def _batches(self, lines: bytes) -> Iterator[pa.RecordBatch]:
        if self._format.multi_line:
            self._pieces.append(lines)
            return
        first = self._decoder.lines - lines.count(b"\n") + 1
        documents, values, numbers = [], [], []
        for number, line in enumerate(lines.decode().split("\n"), first):
            document = line.strip(_SPACES)
            if document:
                documents.append(document)
                numbers.append(number)
                values.append(self._parsed(document, number))
        if documents:
            yield self._batch(documents, values, numbers)

    def _parsed(self, document: str, line: int) -> Json:
        try:
            return parse_line(document)
        except ValueError as error:
            raise self._part.error(str(error), _FIX_LINE, line=line) from None

    def _whole_file(self, text: str) -> Iterator[pa.RecordBatch]:
        if not text.strip(_SPACES + "\n"):
            return
        try:
            result = documents_of(text)
        except ValueError as error:
            raise self._part.error(str(error), _FIX) from None
        if result:
            numbers = [1 + text.count("\n", 0, begin) for begin, _, _ in result]
            yield self._batch([text[begin:end] for begin, end, _ in result], [each for _, _, each in result], numbers)

    def _batch(self, documents: list[str], values: list[Json], lines: list[int]) -> pa.RecordBatch:
        objects = [each for each in values if isinstance(each, dict)]
        if len(objects) != len(values):
            number = next(number for number, each in enumerate(values) if not isinstance(each, dict))
            raise self._part.error("the document is not an object", _FIX, line=lines[number])
        if self._columns_of is None and self._format.with_columns:
            for document, value, line in zip(documents, values, lines, strict=True):
                problem = beyond_limits(document, value)
                if problem is not None:
                    raise self._part.error(f"{problem}, so its fields cannot be columns", _FIX_LIMIT, line=line)
        columns: dict[str, pa.Array] = {}
        for path, steps in self._format.paths:
            texts = [text_at(document, value, steps) for document, value in zip(documents, values, strict=True)]
            columns[path] = pa.array(texts, pa.string())
        columns[DOCUMENT] = pa.array(documents, pa.string()).cast(pa.binary())
        if self._columns_of is None:
            return pa.RecordBatch.from_pydict(columns)
        try:
            fields = self._columns_of(objects, range(len(objects)))
        except FieldError as error:
            raise self._part.error(str(error), _FIX_FIELD, line=lines[error.record]) from None
        columns[PLACE] = pa.array(map(self._part.place, lines), pa.string())
        names = [each.name for each in fields.type.fields]
        return pa.RecordBatch.from_arrays([*fields.flatten(), *columns.values()], names=[*names, *columns])


def _fields(
    spark: "SparkSession", documents: "DataFrame", schema: str | None, files: Sequence[InputFile]
) -> "StructType":
    """Return the fields that SQL expressions can use, inferred from the documents.

    A schema is compared with them, because a field that no document has would be null in all rows.
    """
    text = documents.select(documents[DOCUMENT].cast("string"))
    result = spark.read.json(
        text, primitivesAsString=True, mode="FAILFAST", columnNameOfCorruptRecord=_NO_FIELD
    ).schema
    if schema is None:
        return result
    fields = parsed_schema(schema)
    missing = missing_fields(fields, result)
    if missing:
        raise UnreadableInputError(
            f"{files[0].path} and {len(files) - 1} more files: no document has the field {shown(missing)} "
            "of --schema. "
            "Correct the name, of which the case counts too."
        )
    return fields


def _steps(path: str) -> list[Step]:
    try:
        return parse_path(path)
    except ValueError:
        raise UsageError(f"{path!r} is no JSON path; expected one such as $.customer.id or $.items[0].") from None


def _column(name: str) -> "Column":
    from pyspark.sql import functions as F  # noqa: N812

    return F.col(quoted(name))
