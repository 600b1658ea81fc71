"""Avro schemas: their columns, and a form that fastavro decodes without loss.

fastavro decodes logical types into Python objects, which cannot hold every value. It also accepts some invalid data.
The reader therefore gives fastavro a schema of plain types, and converts the decoded values itself:

- Logical types decode as their numbers or bytes, enums as the index of the symbol, booleans as one byte.
- Maps decode as arrays of pairs, so that a repeated key is an error, not a lost value. The encoding is the same.
- All names are generated, because Python and Arrow restrict names differently than Avro does.
- Unions end with types that never decode, because fastavro takes a negative index from the end of the union.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, TypeGuard
from uuid import UUID

from pyspark.sql import types as T  # noqa: N812 - Spark's own name for it

from spark_cas.programs.errors import UsageError

_MOST_DEPTH = 50
"""Maximum nesting depth. Arrow's limit is 64."""
_MOST_TYPES = 100_000
"""Maximum number of types. A short schema can expand to billions of fields."""
_MOST_FIXED = 2**31 - 1
_MOST_DIGITS = 38
_NEVER_DECODES = 1 << 40
"""Size in bytes of a fixed type that is larger than any block."""
_UUID_BYTES = 16
_PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
_NAMED = {"record", "enum", "fixed"}
_BOOLEANS = {b"\0": False, b"\1": True}

Convert = Callable[[Any], Any]


def _same(value: object) -> object:
    return value


def _micros(millis: int) -> int:
    return millis * 1000


def _not_before(first: int, convert: Convert = _same) -> Convert:
    def converted(value: int) -> object:
        if value < first:
            raise ValueError(
                "a date before 1582-10-15 or a time before 1900 is in the Julian calendar of old versions of Spark"
            )
        return convert(value)

    return converted


@dataclass(frozen=True, slots=True)
class AvroType:
    """The type at one position in a schema, such as a field."""

    spark: Any
    """The type of the column in Spark."""
    raw: object
    """The schema that fastavro decodes."""
    convert: Convert = _same
    """Converts a value that fastavro decodes to one that `pyarrow.array` stores exactly, with numbers for dates and
    times. Raises ValueError or LookupError for a value that the type excludes."""
    nullable: bool = False


_SIMPLE: Mapping[tuple[str, str | None], AvroType] = {
    ("int", None): AvroType(T.IntegerType(), "int"),
    ("int", "date"): AvroType(T.DateType(), "int"),
    ("long", None): AvroType(T.LongType(), "long"),
    ("long", "timestamp-millis"): AvroType(T.TimestampType(), "long", _micros),
    ("long", "timestamp-micros"): AvroType(T.TimestampType(), "long"),
    ("long", "local-timestamp-millis"): AvroType(T.TimestampNTZType(), "long", _micros),
    ("long", "local-timestamp-micros"): AvroType(T.TimestampNTZType(), "long"),
    ("float", None): AvroType(T.FloatType(), "float"),
    ("double", None): AvroType(T.DoubleType(), "double"),
    ("bytes", None): AvroType(T.BinaryType(), "bytes"),
    ("string", None): AvroType(T.StringType(), "string"),
    ("string", "uuid"): AvroType(T.StringType(), "string"),
}
"""Types without properties of their own, by kind and logical type."""
_FIRST_DAY = -141_427
"""First day of the Gregorian calendar, 1582-10-15, in days since 1970."""
_FIRST_MILLIS = -2_208_988_800_000
"""1900-01-01 in UTC. Spark shifts no later time of a file with the Julian calendar, in any time zone."""
_JULIAN: Mapping[tuple[str, str | None], AvroType] = {
    **_SIMPLE,
    ("int", "date"): AvroType(T.DateType(), "int", _not_before(_FIRST_DAY)),
    ("long", "timestamp-millis"): AvroType(T.TimestampType(), "long", _not_before(_FIRST_MILLIS, _micros)),
    ("long", "timestamp-micros"): AvroType(T.TimestampType(), "long", _not_before(_FIRST_MILLIS * 1000)),
}
"""As `_SIMPLE`, for a file whose old dates and times are in the Julian calendar. Decoding rejects these."""


def parse_schema(text: str, file: str, *, is_julian: bool = False) -> AvroType:
    """Return the record that the schema in the header of a file describes.

    If ``is_julian`` is true, the conversion rejects dates and times that the Julian calendar shifts.

    Raises UsageError, which names the file and the field, for a schema that is invalid or has a type that a load does
    not read.
    """
    result = parse_type(text, file, is_julian=is_julian)
    if not isinstance(result.spark, T.StructType) or result.nullable:
        raise UsageError(f"{file}: the Avro schema is not that of a record. Nothing was appended. Write records.")
    return result


def parse_type(text: str, name: str, *, is_julian: bool = False) -> AvroType:
    """Return the type that a schema describes. Raises UsageError as `parse_schema`, with the name of the schema."""
    try:
        return _Parser(name, _JULIAN if is_julian else _SIMPLE).slot(json.loads(text), _Place())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name}: the Avro schema is not valid JSON. Nothing was appended.") from error


@dataclass(frozen=True, slots=True)
class _Place:
    """A position in a schema, for names and errors."""

    fields: tuple[str, ...] = ()
    """Names of the enclosing fields and of the field itself."""
    records: tuple[str, ...] = ()
    """Full names of the enclosing records."""
    namespace: str = ""
    """Namespace for names without one."""

    def field(self, name: str) -> "_Place":
        return replace(self, fields=(*self.fields, name))


@dataclass(slots=True)
class _Parser:
    file: str
    simple: Mapping[tuple[str, str | None], AvroType]
    named: dict[str, tuple[dict[str, Any], str]] = field(default_factory=dict)
    """Schema of each named type by its full name, and the namespace for the names in it."""
    types: int = 0

    def slot(self, schema: object, place: _Place) -> AvroType:
        """Parse the schema at a place, which may be a union with null."""
        if not isinstance(schema, list):
            return self._type(schema, place)
        members = [each for each in schema if _name_of(each) != "null"]
        if len(members) != 1 or len(schema) - len(members) > 1 or isinstance(members[0], list):
            names = ", ".join(map(_name_of, schema))
            raise self._error(place, f"union of {names}", "A load reads unions of null and one other type")
        member = self._type(members[0], place)
        never = self._fixed(_NEVER_DECODES)
        raw = [member.raw if each is members[0] else "null" for each in schema]
        raw += [never, never["name"]][: len(raw)]
        convert = member.convert

        def convert_unless_null(value: object) -> object:
            return None if value is None else convert(value)

        return AvroType(member.spark, raw, convert if convert is _same else convert_unless_null, len(schema) > 1)

    def _type(self, schema: object, place: _Place) -> AvroType:
        self.types += 1
        if len(place.fields) > _MOST_DEPTH or self.types > _MOST_TYPES:
            top = replace(place, fields=place.fields[:1])
            raise self._error(top, "schema that is nested too deeply or is too large", "Write a simpler schema")
        if isinstance(schema, str) and schema not in _PRIMITIVES:
            definition = self.named.get(_full_name(schema, place.namespace)) or self.named.get(schema)
            if definition is None:
                raise self._error(place, f"type {schema}", "The Avro schema does not define it")
            schema, place = definition[0], replace(place, namespace=definition[1])
        properties: dict[str, Any] = schema if isinstance(schema, dict) else {"type": schema}
        kind, logical = properties.get("type"), properties.get("logicalType")
        if isinstance(kind, dict) and logical is None:  # {"type": {"type": "string"}}, which Java also accepts
            return self._type(kind, place)
        if not isinstance(kind, str) or not isinstance(logical, str | None):
            raise self._error(place, f"schema {_name_of(schema)}", "The Avro schema is invalid")
        if kind in _NAMED:
            place = self._defined(properties, place)
        if (kind, logical) in self.simple:
            return self.simple[kind, logical]
        if (build := _BUILDERS.get((kind, logical))) is not None:
            return build(self, properties, place)
        name = f"type {kind}" if logical is None else f"logical type {logical} of {kind}"
        raise self._error(place, name, "A load cannot read this type")

    def boolean(self, _properties: dict[str, Any], _place: _Place) -> AvroType:
        return AvroType(T.BooleanType(), self._fixed(1), _BOOLEANS.__getitem__)

    def array(self, properties: dict[str, Any], place: _Place) -> AvroType:
        item = self.slot(properties.get("items"), place.field("element"))
        convert = _same if item.convert is _same else lambda values: list(map(item.convert, values))
        return AvroType(T.ArrayType(item.spark, item.nullable), {"type": "array", "items": item.raw}, convert)

    def map(self, properties: dict[str, Any], place: _Place) -> AvroType:
        value = self.slot(properties.get("values"), place.field("value"))

        def convert(pairs: list[dict[str, Any]]) -> list[tuple[str, Any]]:
            result = {each["f0"]: value.convert(each["f1"]) for each in pairs}
            if len(result) != len(pairs):
                raise ValueError("a map has a key twice")
            return list(result.items())

        raw = {"type": "array", "items": self._fields(["string", value.raw])}
        return AvroType(T.MapType(T.StringType(), value.spark, value.nullable), raw, convert)

    def enum(self, properties: dict[str, Any], place: _Place) -> AvroType:
        symbols = properties.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(each, str) for each in symbols):
            raise self._error(place, "enum without symbols", "The Avro schema is invalid")
        return AvroType(T.StringType(), "int", dict(enumerate(symbols)).__getitem__)

    def fixed(self, properties: dict[str, Any], place: _Place) -> AvroType:
        return AvroType(T.BinaryType(), self._fixed(self._size(properties, place)))

    def uuid(self, properties: dict[str, Any], place: _Place) -> AvroType:
        if self._size(properties, place) != _UUID_BYTES:
            raise self._error(place, "UUID that does not have 16 bytes", "The Avro schema is invalid")
        return AvroType(T.StringType(), self._fixed(_UUID_BYTES), lambda data: str(UUID(bytes=data)))

    def record(self, properties: dict[str, Any], place: _Place) -> AvroType:
        fields: dict[str, AvroType] = {}
        names: dict[str, str] = {}
        listed = properties.get("fields")
        if not isinstance(listed, list) or not listed:
            raise self._error(place, "record without fields", "Columns need at least one field")
        for each in listed:
            name = each.get("name") if isinstance(each, dict) else None
            if not isinstance(name, str) or not name:
                raise self._error(place, "field without a name", "The Avro schema is invalid")
            other = names.setdefault(name.lower(), name)
            if other != name or name in fields:
                problem = f"name that field {other} has too"
                raise self._error(place.field(name), problem, "Names must differ by more than case")
            fields[name] = self.slot(each.get("type"), place.field(name))
        spark = T.StructType([T.StructField(name, each.spark, each.nullable) for name, each in fields.items()])
        conversions = [(name, each.convert) for name, each in fields.items()]

        def convert(row: dict[str, Any]) -> dict[str, Any]:
            values = zip(conversions, row.values(), strict=True)
            return {name: value if change is _same else change(value) for (name, change), value in values}

        return AvroType(spark, self._fields([each.raw for each in fields.values()]), convert)

    def decimal(self, properties: dict[str, Any], place: _Place) -> AvroType:
        precision, scale = properties.get("precision"), properties.get("scale", 0)
        if not (_is_int(precision) and _is_int(scale) and 1 <= precision <= _MOST_DIGITS and 0 <= scale <= precision):
            problem = f"decimal of precision {precision} and scale {scale}"
            raise self._error(place, problem, f"Spark's decimals have 1 to {_MOST_DIGITS} digits")
        bound = 10**precision

        def convert(data: bytes) -> Decimal:
            unscaled = int.from_bytes(data, "big", signed=True)
            if not data or not -bound < unscaled < bound:
                raise ValueError(f"a decimal is not within {precision} digits")
            return Decimal(f"{unscaled}E-{scale}")

        raw = "bytes" if properties["type"] == "bytes" else self._fixed(self._size(properties, place))
        return AvroType(T.DecimalType(precision, scale), raw, convert)

    def _size(self, properties: dict[str, Any], place: _Place) -> int:
        size = properties.get("size")
        if not _is_int(size) or not 1 <= size <= _MOST_FIXED:
            raise self._error(place, f"fixed of size {size}", "A load reads sizes of at least 1 byte")
        return size

    def _defined(self, properties: dict[str, Any], place: _Place) -> _Place:
        """Record the definition of a named type, and return the position inside it."""
        name, own = properties.get("name"), properties.get("namespace", place.namespace)
        if not isinstance(name, str) or not name or not isinstance(own, str):
            raise self._error(place, f"{properties['type']} without a name", "The Avro schema is invalid")
        full = _full_name(name, own)
        if full in place.records:
            raise self._error(place, f"recursive record {full}", "Columns cannot hold recursive types")
        namespace = full.rpartition(".")[0]
        if self.named.setdefault(full, (properties, namespace))[0] is not properties:
            raise self._error(place, f"second definition of {full}", "The Avro schema is invalid")
        return replace(place, records=(*place.records, full), namespace=namespace)

    def _fields(self, types: list[object]) -> dict[str, object]:
        named = [{"name": f"f{at}", "type": each} for at, each in enumerate(types)]
        return {"type": "record", "name": self._new_name(), "fields": named}

    def _fixed(self, size: int) -> dict[str, object]:
        return {"type": "fixed", "name": self._new_name(), "size": size}

    def _new_name(self) -> str:
        self.types += 1
        return f"t{self.types}"

    def _error(self, place: _Place, problem: str, reason: str) -> UsageError:
        where = f"field {'.'.join(place.fields)}" if place.fields else "the schema"
        return UsageError(f"{self.file}: {where} has a {problem}. {reason}. Nothing was appended.")


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _name_of(schema: object) -> str:
    if isinstance(schema, dict):
        return str(schema.get("name", schema.get("logicalType", schema.get("type"))))
    return "union" if isinstance(schema, list) else str(schema)


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


_BUILDERS: Mapping[tuple[str, str | None], Callable[[_Parser, dict[str, Any], _Place], AvroType]] = {
    ("boolean", None): _Parser.boolean,
    ("enum", None): _Parser.enum,
    ("fixed", None): _Parser.fixed,
    ("fixed", "uuid"): _Parser.uuid,
    ("fixed", "decimal"): _Parser.decimal,
    ("bytes", "decimal"): _Parser.decimal,
    ("array", None): _Parser.array,
    ("map", None): _Parser.map,
    ("record", None): _Parser.record,
}
"""Parsers of the types that have properties of their own or need a generated name."""
