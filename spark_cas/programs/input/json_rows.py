"""JSON documents as a DataFrame: the original bytes of each document, and columns for SQL expressions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812 - Spark's own name for it

from spark_cas.core.errors import UnreadableInputError
from spark_cas.core.input_list import InputFile
from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.columns import arrow_type, missing_fields
from spark_cas.programs.input.exact_values import (
    PLACE,
    TIME_OPTIONS,
    ReadOptions,
    ValueFormats,
    text_column,
    text_fields,
    text_type,
    with_parsed_times,
    wrong_values,
)
from spark_cas.programs.input.json_documents import (
    Json,
    Number,
    Step,
    beyond_limits,
    compact,
    documents_of,
    parse_line,
    parse_path,
    text_at,
)
from spark_cas.programs.input.parts import (
    BAD,
    SHOWN_CHARACTERS,
    UTF_8,
    Part,
    count_filled_lines,
    decoded_lines,
    encoding_name,
    keeps_line_ends,
    require_free_names,
    require_whole_file,
    shown,
    text_pieces,
)
from spark_cas.programs.input.spark_files import parsed_schema, read_lines
from spark_cas.spark.versions import parse_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")

Converter: TypeAlias = Callable[[Sequence[Json], Sequence[int]], pa.Array]
"""A function that converts the values of a field. The numbers are those of their documents, for `FieldError`."""


class FieldError(ValueError):
    """A value of a document does not fit the schema. The message describes it."""

    def __init__(self, record: int, problem: str) -> None:
        super().__init__(problem)
        self.record = record


def field_converter(schema: T.StructType, formats: ValueFormats, *, scalars_only: bool) -> Converter:
    """Return the converter of documents to a struct array with `text_type` of a schema.

    It raises FieldError. If `scalars_only`, STRING fields reject objects and arrays.

    Raises UsageError for a type that JSON does not have.
    """

    def converter(name: str, kind: T.DataType) -> Converter:
        match kind:
            case T.StructType():
                members = {each.name: converter(f"{name}.{each.name}", each.dataType) for each in kind}
                required = [each.name for each in kind if not each.nullable]
                return _struct(name, members, required, arrow_type(text_type(kind, formats)))
            case T.ArrayType():
                inner, with_null = converter(f"{name}[]", kind.elementType), kind.containsNull
            case T.MapType():
                if not isinstance(kind.keyType, T.StringType):
                    raise UsageError(f"--schema: the names of {shown(name[1:])} are text: expected MAP<STRING, ...>.")
                inner, with_null = converter(f"{name}[]", kind.valueType), kind.valueContainsNull
            case _:
                return _scalar(name[1:], kind, formats, scalars_only=scalars_only)
        return _list(name, inner, arrow_type(text_type(kind, formats)), with_null=with_null)

    return converter("", schema)


def _scalar(name: str, kind: T.DataType, formats: ValueFormats, *, scalars_only: bool) -> Converter:
    column = text_column(T.StructField(name, kind), formats)
    if column.kind == "binary":
        raise UsageError(f"--schema: JSON has no bytes for {shown(name)}: expected STRING.")

    def convert(values: Sequence[Json], records: Sequence[int]) -> pa.Array:
        expected = "a text, as it is in other documents" if column.kind == "string" else column.type
        for value, record in zip(values, records, strict=True):
            if value is not None and not _fits(value, column.kind, scalars_only=scalars_only):
                raise _error(record, name, value, expected)
        texts = [each if each is None or isinstance(each, str) else compact(each) for each in values]
        array = pa.array(texts, pa.string())
        if formats.pattern(column.kind):
            return array
        try:
            return column.values(array)
        except ValueError:
            wrong = next(wrong_values(array, column))
            raise _error(records[wrong], name, values[wrong], expected) from None

    return convert


def _fits(value: Json, kind: str, *, scalars_only: bool) -> bool:
    """Return whether the kind of a JSON value is that of the type."""
    is_text = isinstance(value, str) and not isinstance(value, Number)
    match kind:
        case "string":
            return not (scalars_only and isinstance(value, dict | list))
        case "boolean":
            return isinstance(value, bool)
        case "date" | "timestamp" | "timestamp_ntz":
            return is_text
        case "float" | "double":
            return isinstance(value, Number) or value in _NOT_FINITE
    # Many systems write decimals as strings, because many parsers convert numbers to floating point.
    return isinstance(value, Number) or (kind == "decimal" and is_text)


def _struct(name: str, members: dict[str, Converter], required: Sequence[str], target: pa.StructType) -> Converter:
    in_lower_case = {each.lower(): each for each in members}

    def check(value: Json, record: int) -> None:
        if not isinstance(value, dict):
            raise _error(record, name[1:], value, "an object")
        for each in value.keys() - members.keys():
            other = in_lower_case.get(each.lower())
            if other is not None and other not in value:
                raise FieldError(record, f"the field {shown(each)} differs in case from {shown(other)} of --schema")
        for each in required:
            if value.get(each) is None:
                raise FieldError(record, f"the field {shown(f'{name}.{each}'[1:])} is absent, and is NOT NULL")

    def convert(values: Sequence[Json], records: Sequence[int]) -> pa.Array:
        for value, record in zip(values, records, strict=True):
            if value is not None:
                check(value, record)
        objects = [each if isinstance(each, dict) else {} for each in values]
        arrays = [member([each.get(key) for each in objects], records) for key, member in members.items()]
        mask = pa.array([each is None for each in values], pa.bool_())
        return pa.StructArray.from_arrays(arrays, fields=list(target.fields), mask=mask)

    return convert


def _list(name: str, inner: Converter, target: pa.DataType, *, with_null: bool) -> Converter:
    """Return the converter of arrays, or of objects to a map."""
    is_map = pa.types.is_map(target)

    def convert(values: Sequence[Json], records: Sequence[int]) -> pa.Array:
        names: list[str] = []
        elements: list[Json] = []
        owners: list[int] = []
        offsets = [0]
        for value, record in zip(values, records, strict=True):
            if isinstance(value, dict) and is_map:
                names += value
                elements += value.values()
            elif isinstance(value, list) and not is_map:
                elements += value
            elif value is not None:
                raise _error(record, name[1:], value, "an object" if is_map else "an array")
            owners += [record] * (len(elements) - len(owners))
            offsets.append(len(elements))
        if not with_null and None in elements:
            problem = f"an element of {shown(name[1:])} is null, and is NOT NULL"
            raise FieldError(owners[elements.index(None)], problem)
        converted = inner(elements, owners)
        starts = pa.array(offsets, pa.int32())
        mask = pa.array([each is None for each in values], pa.bool_())
        if is_map:
            return pa.MapArray.from_arrays(starts, pa.array(names, pa.string()), converted, type=target, mask=mask)
        return pa.ListArray.from_arrays(starts, converted, type=target, mask=mask)

    return convert


def _error(record: int, name: str, value: Json, expected: str) -> FieldError:
    if isinstance(value, dict | list):
        result = "an object" if isinstance(value, dict) else "an array"
    elif isinstance(value, bool):
        result = str(value).lower()
    else:
        result = value[:SHOWN_CHARACTERS] if isinstance(value, Number) else shown(value)
    return FieldError(record, f"the field {shown(name)}: {result} is not exactly {expected}")


@dataclass(frozen=True, slots=True)
class _Format:
    """Settings of a task that reads a part."""

    encoding: str
    multi_line: bool
    schema: T.StructType | None
    is_inferred: bool
    formats: ValueFormats
    paths: tuple[tuple[str, tuple[Step, ...]], ...]
    with_columns: bool
    with_bad: bool


def json_rows(
    spark: "SparkSession",
    files: Sequence[InputFile],
    schema: str | None,
    read_options: Mapping[str, str],
    *,
    paths: Sequence[str] = (),
    with_columns: bool = True,
    with_bad: bool = False,
) -> "DataFrame":
    """Return the documents of JSON files: fields, paths, and the columns `DOCUMENT`, `FILE` and `POSITION`.

    With the read option `multiLine` or another encoding than UTF-8, run the plan under `whole_file_settings`.

    Args:
        files: all files of the input, in the order of their rows
        schema: names and types of the fields in SQL; None takes those of all documents, and scalars as their text
        read_options: options of Spark's JSON reader; without `multiLine` each line is a document
        paths: values of the documents to return as columns, such as `$.customer.id`. Each column has the name of its
          path, and the exact text of the value: a string without quotes and escapes, and null if the value is null
        with_columns: whether fields are returned as columns. Without them no file is read to infer a schema
        with_bad: whether to return malformed documents, and those that the schema excludes, in the column `BAD`.
          Otherwise they raise an error.

    Raises:
        UsageError: for an option, a path or a type that is not supported
        UnreadableInputError: for a field of the schema that no document has; from tasks for any bad content
    """
    read = ReadOptions(read_options, _NAMES)
    read.require_fail_fast()
    formats = read.value_formats()
    encoding = encoding_name(read.text("encoding", UTF_8))
    multi_line = read.flag("multiLine", default=False)
    steps = tuple((path, tuple(_steps(path))) for path in dict.fromkeys(paths))
    task = _Format(encoding, multi_line, None, schema is None, formats, steps, with_columns, with_bad)
    columns = [T.StructField(path, T.StringType()) for path, _ in steps]
    task_schema = T.StructType([*columns, T.StructField(DOCUMENT, T.BinaryType(), nullable=with_bad)])
    bad = [T.StructField(BAD, T.StringType())] if with_bad else []
    count = count_filled_lines if keeps_line_ends(encoding) and not multi_line else None
    rows = read_lines(spark, files, partial(_json_batches, task=task), T.StructType([*task_schema, *bad]), count)
    if not with_columns:
        return rows
    if schema is not None:
        field_converter(parsed_schema(schema), formats, scalars_only=False)  # reject unsupported types
    fields = _fields(spark, rows.where(rows[BAD].isNull()) if with_bad else rows, schema, files)
    require_free_names(fields.names)
    used = {name.lower() for name in (*rows.columns, PLACE)} & {name.lower() for name in fields.names}
    if used:
        raise UsageError(f"the documents have a field {shown(min(used))}, which a load adds itself: rename it.")
    columns = [
        T.StructField(each.name, each.dataType, each.nullable or with_bad) for each in text_fields(fields, formats)
    ]
    result = T.StructType([*columns, *task_schema, T.StructField(PLACE, T.StringType()), *bad])
    rows = read_lines(spark, files, partial(_json_batches, task=replace(task, schema=fields)), result, count)
    return with_parsed_times(rows, fields, formats)


def _json_batches(part: Part, pieces: Iterator[bytes], task: _Format) -> Iterator[pa.RecordBatch]:
    require_whole_file(part, task.encoding, whole=task.multi_line)
    reader = _JsonReader(part, task)
    lines = decoded_lines(part, text_pieces(part, pieces, "JSON"), task.encoding)
    if task.multi_line:
        yield from reader.whole_file(b"".join(text for _, text in lines).decode())
        return
    for first, text in lines:
        yield from reader.documents(first, text.decode())


class _JsonReader:
    def __init__(self, part: Part, task: _Format) -> None:
        self._part = part
        self._format = task
        self._columns_of = None
        if task.schema is not None:
            self._columns_of = field_converter(task.schema, task.formats, scalars_only=task.is_inferred)

    def documents(self, first: int, lines: str) -> Iterator[pa.RecordBatch]:
        documents: list[str] = []
        values: list[Json | ValueError] = []
        numbers: list[int] = []
        for number, line in enumerate(lines.split("\n"), first):
            document = line.strip(_SPACES)
            if document:
                documents.append(document)
                numbers.append(number)
                try:
                    values.append(parse_line(document))
                except ValueError as error:
                    values.append(error)
        if documents:
            yield self._batch(documents, values, numbers)

    def whole_file(self, text: str) -> Iterator[pa.RecordBatch]:
        if not text.strip(_SPACES + "\n"):
            return
        try:
            result = documents_of(text)
        except ValueError as error:
            raise self._part.error(str(error), _FIX) from None
        if result:
            numbers = [1 + text.count("\n", 0, begin) for begin, _, _ in result]
            yield self._batch([text[begin:end] for begin, end, _ in result], [each for _, _, each in result], numbers)

    def _batch(self, documents: list[str], values: "Sequence[Json | ValueError]", lines: list[int]) -> pa.RecordBatch:
        bad: dict[int, str] = {}

        def reject(record: int, problem: str, fix: str) -> None:
            if not self._format.with_bad:
                raise self._part.error(problem, fix, line=lines[record]) from None
            bad[record] = problem

        is_limited = self._format.with_columns and (self._format.is_inferred or self._columns_of is None)
        objects: dict[int, dict[str, Json]] = {}
        for record, value in enumerate(values):
            if isinstance(value, ValueError):
                reject(record, str(value), _FIX_LINE)
            elif not isinstance(value, dict):
                reject(record, "the document is not an object", _FIX)
            elif is_limited and (problem := beyond_limits(documents[record], value)) is not None:
                reject(record, f"{problem}, so its fields cannot be columns", _FIX_LIMIT)
            else:
                objects[record] = value
        fields = self._columns_of and self._fields(self._columns_of, objects, reject)
        columns: dict[str, pa.Array] = {}
        for path, steps in self._format.paths:
            texts = [text_at(documents[record], value, steps) for record, value in objects.items()]
            columns[path] = pa.array(texts, pa.string())
        columns[DOCUMENT] = pa.array([documents[record] for record in objects], pa.string()).cast(pa.binary())
        names: list[str] = []
        if fields is not None:
            columns[PLACE] = pa.array([self._part.place(lines[record]) for record in objects], pa.string())
            names = [each.name for each in fields.type.fields]
        arrays = [*(fields.flatten() if fields is not None else ()), *columns.values()]
        batch = pa.RecordBatch.from_arrays(arrays, names=[*names, *columns])
        if not self._format.with_bad:
            return batch
        return self._part.with_bad_rows(batch, [(lines[each], bad[each], documents[each]) for each in bad])

    @staticmethod
    def _fields(
        convert: Converter, objects: dict[int, dict[str, Json]], reject: Callable[[int, str, str], None]
    ) -> pa.StructArray:
        """Return the fields of documents. Reject documents that do not fit the schema, and remove them."""
        try:
            return convert([*objects.values()], [*objects])
        except FieldError as error:
            reject(error.record, str(error), _FIX_FIELD)
        for record, value in [*objects.items()]:
            try:
                convert([value], [record])
            except FieldError as error:
                reject(record, str(error), _FIX_FIELD)
                del objects[record]
        return convert([*objects.values()], [*objects])


def _fields(
    spark: "SparkSession", documents: "DataFrame", schema: str | None, files: Sequence[InputFile]
) -> T.StructType:
    """Return the fields that SQL expressions can use, inferred from the documents.

    A schema is compared with them, because a field that no document has would be null in all rows.
    """
    text = documents.select(documents[DOCUMENT].cast("string"))
    reader = spark.read.options(primitivesAsString=True, mode="FAILFAST", columnNameOfCorruptRecord=_NO_FIELD)
    result = parse_json(reader, text).schema
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
