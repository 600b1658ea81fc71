"""Convert the fields of JSON documents to columns. A value that its type cannot represent exactly is an error."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812 - Spark's own name for it

from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.json_documents import Json, Number, compact
from spark_cas.programs.input.merged_columns import arrow_type
from spark_cas.programs.input.parts import SHOWN_CHARACTERS, shown
from spark_cas.programs.input.read_options import ValueFormats
from spark_cas.programs.input.time_patterns import text_type
from spark_cas.programs.input.typed_text import first_wrong, text_column

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
            wrong = first_wrong(array, column)
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


def missing_fields(schema: T.DataType, result: T.DataType, name: str = "") -> str | None:
    """Return the first field of a schema that is missing in the other; None if there is none."""
    match schema, result:
        case T.StructType(), T.StructType():
            existing = {each.name: each.dataType for each in result}
            for each in schema:
                path = f"{name}.{each.name}" if name else each.name
                if each.name not in existing:
                    return path
                if missing := missing_fields(each.dataType, existing[each.name], path):
                    return missing
        case T.ArrayType(), T.ArrayType():
            return missing_fields(schema.elementType, result.elementType, name)
    return None
