"""Check that values of JSON documents are valid for a schema and keep their exact value.

Spark's `from_json` (4.2) converts a number to text through DOUBLE: 1.10 becomes 1.1. This module therefore renders
documents in which each value of a STRING field is a string.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, cast

import pyarrow as pa

from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.json_documents import Json, Number, compact
from spark_cas.programs.input.parts import SHOWN_CHARACTERS, shown
from spark_cas.programs.input.read_options import ValueFormats
from spark_cas.programs.input.typed_text import TextColumn, first_wrong, text_column

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_NOT_FINITE = ("NaN", "Infinity", "-Infinity")


class FieldError(ValueError):
    """A value of a document does not fit the schema. The message describes it."""

    def __init__(self, record: int, problem: str) -> None:
        super().__init__(problem)
        self.record = record


class _Node(Protocol):
    def visit(self, value: Json, record: int) -> None:
        """Check a value other than null in the document with this number."""

    def render(self, value: Json) -> str:
        """Return a value other than null as JSON for `from_json`."""


class JsonFields:
    """Checks documents in batches. It collects the texts of a field and checks them together."""

    def __init__(self, schema: "StructType", formats: ValueFormats, *, scalars_only: bool) -> None:
        """If `scalars_only`, STRING fields reject objects and arrays."""
        self._scalars_only = scalars_only
        self._formats = formats
        self._leaves: list[_Leaf] = []
        self._root = self._node("", schema)

    def check(self, documents: Sequence[dict[str, Json]]) -> None:
        """Raise FieldError for a value that its type cannot represent exactly."""
        for leaf in self._leaves:
            leaf.clear()
        for record, document in enumerate(documents):
            self._root.visit(document, record)
        for leaf in self._leaves:
            leaf.check()

    def rendered(self, document: dict[str, Json]) -> str:
        """Return a document's fields as JSON for `from_json`. Call `check` first."""
        return self._root.render(document)

    def _node(self, name: str, kind: "DataType") -> _Node:
        from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

        if isinstance(kind, StructType):
            members = {each.name: self._node(f"{name}.{each.name}", each.dataType) for each in kind}
            return _Object(name, members, {each.name for each in kind if not each.nullable})
        if isinstance(kind, ArrayType):
            return _Array(name, self._node(f"{name}[]", kind.elementType), with_null=kind.containsNull)
        if isinstance(kind, MapType):
            if not isinstance(kind.keyType, StringType):
                raise UsageError(f"--schema: the names of {shown(name[1:])} are text: expected MAP<STRING, ...>.")
            return _Map(name, self._node(f"{name}[]", kind.valueType), with_null=kind.valueContainsNull)
        column = text_column(StructField(name[1:], kind), self._formats)
        if column.kind == "binary":
            raise UsageError(f"--schema: JSON has no bytes for {shown(name[1:])}: expected STRING.")
        has_pattern = bool(self._formats.pattern(column.kind))
        leaf = _Leaf(column, scalars_only=self._scalars_only, parsed_later=has_pattern)
        self._leaves.append(leaf)
        return leaf


class _Leaf:
    def __init__(self, column: TextColumn, *, scalars_only: bool, parsed_later: bool) -> None:
        self._column = column
        self._scalars_only = scalars_only
        self._parsed_later = parsed_later
        self._texts: list[str] = []
        self._records: list[int] = []

    def clear(self) -> None:
        self._texts, self._records = [], []

    def visit(self, value: Json, record: int) -> None:
        kind = self._column.kind
        if kind == "string":
            if self._scalars_only and isinstance(value, dict | list):
                raise _error(record, self._column.name, value, "a text, as it is in other documents")
            return
        if kind == "boolean":
            fits = isinstance(value, bool)
        elif kind in ("date", "timestamp", "timestamp_ntz"):
            fits = isinstance(value, str) and not isinstance(value, Number)
        elif kind in ("float", "double"):
            fits = isinstance(value, Number) or value in _NOT_FINITE
        else:
            # Many systems write decimals as strings, because many parsers convert numbers to floating point.
            fits = isinstance(value, str if kind == "decimal" else Number)
        if not fits:
            raise _error(record, self._column.name, value, self._column.type)
        if isinstance(value, str) and not self._parsed_later:
            self._texts.append(value)
            self._records.append(record)

    def render(self, value: Json) -> str:
        if self._column.kind == "string" and (isinstance(value, Number | bool) or not isinstance(value, str)):
            return compact(compact(value))
        return compact(value)

    def check(self) -> None:
        texts = pa.array(self._texts, pa.string())
        try:
            self._column.values(texts)
        except ValueError:
            wrong = first_wrong(texts, self._column)
            raise _error(self._records[wrong], self._column.name, self._texts[wrong], self._column.type) from None


class _Object:
    def __init__(self, name: str, members: dict[str, _Node], required: set[str]) -> None:
        self._name = name
        self._members = members
        self._required = required
        self._in_lower_case = {each.lower(): each for each in members}

    def visit(self, value: Json, record: int) -> None:
        if not isinstance(value, dict):
            raise _error(record, self._name[1:], value, "an object")
        for name, each in value.items():
            member = self._members.get(name)
            if member is None:
                other = self._in_lower_case.get(name.lower())
                if other is not None and other not in value:
                    raise FieldError(
                        record, f"the field {shown(name)} differs in case from {shown(other)} of --schema"
                    )
            elif each is not None:
                member.visit(each, record)
        for name in self._required:
            if value.get(name) is None:
                raise FieldError(record, f"the field {shown(f'{self._name}.{name}'[1:])} is absent, and is NOT NULL")

    def render(self, value: Json) -> str:
        members = cast("dict[str, Json]", value).items()
        known = ((name, each, self._members.get(name)) for name, each in members)
        return _object((name, each, member) for name, each, member in known if member is not None)


class _Array:
    def __init__(self, name: str, element: _Node, *, with_null: bool) -> None:
        self._name = name
        self._element = element
        self._with_null = with_null

    def visit(self, value: Json, record: int) -> None:
        if not isinstance(value, list):
            raise _error(record, self._name[1:], value, "an array")
        self._visit_all(value, record)

    def render(self, value: Json) -> str:
        elements = cast("list[Json]", value)
        return "[" + ",".join("null" if each is None else self._element.render(each) for each in elements) + "]"

    def _visit_all(self, values: Sequence[Json], record: int) -> None:
        for each in values:
            if each is not None:
                self._element.visit(each, record)
            elif not self._with_null:
                raise FieldError(record, f"an element of {shown(self._name[1:])} is null, and is NOT NULL")


class _Map(_Array):
    def visit(self, value: Json, record: int) -> None:
        if not isinstance(value, dict):
            raise _error(record, self._name[1:], value, "an object")
        self._visit_all(list(value.values()), record)

    def render(self, value: Json) -> str:
        members = cast("dict[str, Json]", value).items()
        return _object((name, each, self._element) for name, each in members)


def _object(members: Iterable[tuple[str, Json, _Node]]) -> str:
    texts = (f"{compact(name)}:{'null' if each is None else node.render(each)}" for name, each, node in members)
    return "{" + ",".join(texts) + "}"


def _error(record: int, name: str, value: Json, expected: str) -> FieldError:
    if isinstance(value, dict | list):
        result = "an object" if isinstance(value, dict) else "an array"
    elif isinstance(value, bool):
        result = str(value).lower()
    else:
        result = value[:SHOWN_CHARACTERS] if isinstance(value, Number) else shown(value)
    return FieldError(record, f"the field {shown(name)}: {result} is not exactly {expected}")


def missing_fields(schema: "DataType", result: "DataType", name: str = "") -> str | None:
    """Return the first field of a schema that is missing in the other; None if there is none."""
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(schema, StructType) and isinstance(result, StructType):
        existing = {each.name: each.dataType for each in result}
        for each in schema:
            path = f"{name}.{each.name}" if name else each.name
            missing = path if each.name not in existing else missing_fields(each.dataType, existing[each.name], path)
            if missing:
                return missing
    if isinstance(schema, ArrayType) and isinstance(result, ArrayType):
        return missing_fields(schema.elementType, result.elementType, name)
    return None
