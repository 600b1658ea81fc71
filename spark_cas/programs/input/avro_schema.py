"""Avro schemas: their columns, and a form that fastavro decodes without loss.

fastavro decodes logical types into Python objects, which cannot hold every value. It also accepts some invalid data.
The reader therefore gives fastavro a schema of plain types, and converts the decoded columns with Arrow:

- Logical types decode as their numbers or bytes, enums as the index of the symbol, booleans as one byte.
- Maps decode as arrays of pairs, so that a repeated key is an error, not a lost value. The encoding is the same.
- All names are generated, because Python and Arrow restrict names differently than Avro does.
- Unions end with types that never decode, because fastavro takes a negative index from the end of the union.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any, Protocol, TypeGuard
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
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


class AvroType(Protocol):
    """A type of an Avro schema other than a union."""

    @property
    def spark(self) -> T.DataType:
        """The type of the column."""

    @property
    def raw(self) -> object:
        """The schema that fastavro decodes."""

    @property
    def decoded(self) -> pa.DataType:
        """The Arrow type of the values that fastavro decodes with `raw`."""

    def converted(self, values: pa.Array, target: pa.DataType) -> pa.Array:
        """Convert decoded values to the type of the column. Raises ValueError for a value that the type excludes."""


@dataclass(frozen=True, slots=True)
class Slot:
    """The type at one position in a schema, such as a field, and whether a value may be null."""

    type: AvroType
    nullable: bool
    raw: object


@dataclass(frozen=True, slots=True)
class _Leaf:
    spark: T.DataType
    raw: object
    decoded: pa.DataType
    convert: Callable[[pa.Array], pa.Array] | None = None

    def converted(self, values: pa.Array, target: pa.DataType) -> pa.Array:
        return (values if self.convert is None else self.convert(values)).cast(target)


@dataclass(frozen=True, slots=True)
class Record:
    """A record. Its fields decode as ``f0``, ``f1`` and so on."""

    fields: Mapping[str, Slot]
    raw: object

    @property
    def spark(self) -> T.StructType:
        return T.StructType(
            [T.StructField(name, each.type.spark, each.nullable) for name, each in self.fields.items()]
        )

    @property
    def decoded(self) -> pa.DataType:
        return pa.struct([pa.field(f"f{at}", each.type.decoded) for at, each in enumerate(self.fields.values())])

    def converted(self, values: pa.Array, target: pa.DataType) -> pa.Array:
        """Convert the fields; a field of the target that the record lacks becomes null."""
        own = {name: (at, each) for at, (name, each) in enumerate(self.fields.items())}
        arrays = []
        for expected in target.fields:
            if expected.name in own:
                at, slot = own[expected.name]
                arrays.append(slot.type.converted(values.field(at), expected.type))
            else:
                arrays.append(pa.nulls(len(values), expected.type))
        return pa.StructArray.from_arrays(arrays, fields=target.fields, mask=values.is_null())


@dataclass(frozen=True, slots=True)
class _Array:
    item: Slot
    raw: object

    @property
    def spark(self) -> T.DataType:
        return T.ArrayType(self.item.type.spark, self.item.nullable)

    @property
    def decoded(self) -> pa.DataType:
        return pa.list_(self.item.type.decoded)

    def converted(self, values: pa.Array, target: pa.DataType) -> pa.Array:
        items = self.item.type.converted(values.values, target.value_type)
        return pa.ListArray.from_arrays(values.offsets, items, type=target, mask=values.is_null())


@dataclass(frozen=True, slots=True)
class _Map:
    value: Slot
    raw: object

    @property
    def spark(self) -> T.DataType:
        return T.MapType(T.StringType(), self.value.type.spark, self.value.nullable)

    @property
    def decoded(self) -> pa.DataType:
        return pa.list_(pa.struct([pa.field("f0", pa.string()), pa.field("f1", self.value.type.decoded)]))

    def converted(self, values: pa.Array, target: pa.DataType) -> pa.Array:
        keys = values.values.field(0)
        pairs = pa.table({"map": pc.list_parent_indices(values), "key": keys})
        if pairs.group_by(["map", "key"]).aggregate([]).num_rows != len(keys):
            raise ValueError("a map has a key twice")
        items = self.value.type.converted(values.values.field(1), target.item_type)
        return pa.MapArray.from_arrays(values.offsets, keys, items, type=target, mask=values.is_null())


def parse_schema(text: str, file: str) -> Record:
    """Return the record that the schema in the header of a file describes.

    Raises UsageError, which names the file and the field, for a schema that is invalid or has a type that a load does
    not read.
    """
    slot = parse_type(text, file)
    if not isinstance(slot.type, Record) or slot.nullable:
        raise UsageError(f"{file}: the Avro schema is not that of a record. Nothing was appended. Write records.")
    return slot.type


def parse_type(text: str, name: str) -> Slot:
    """Return the type that a schema describes. Raises UsageError as `parse_schema`, with the name of the schema."""
    try:
        return _Parser(name).slot(json.loads(text), _Place())
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
    named: dict[str, tuple[dict[str, Any], str]] = field(default_factory=dict)
    """Schema of each named type by its full name, and the namespace for the names in it."""
    types: int = 0

    def slot(self, schema: object, place: _Place) -> Slot:
        """Parse the schema at a place, which may be a union with null."""
        if not isinstance(schema, list):
            parsed = self._type(schema, place)
            return Slot(parsed, nullable=False, raw=parsed.raw)
        members = [each for each in schema if not _is_null(each)]
        if len(members) != 1 or len(schema) - len(members) > 1 or isinstance(members[0], list):
            names = ", ".join(_name_of(each) for each in schema)
            raise self._error(place, f"union of {names}", "A load reads unions of null and one other type")
        parsed = self._type(members[0], place)
        never = self._raw_fixed(_NEVER_DECODES)
        raw = ["null" if _is_null(each) else parsed.raw for each in schema]
        return Slot(parsed, len(schema) > 1, [*raw, *[never, never["name"]][: len(raw)]])

    def _type(self, schema: object, place: _Place) -> AvroType:
        self.types += 1
        if len(place.fields) > _MOST_DEPTH or self.types > _MOST_TYPES:
            top = replace(place, fields=place.fields[:1])
            raise self._error(top, "schema that is nested too deeply or is too large", "Write a simpler schema")
        if isinstance(schema, str) and schema not in _PRIMITIVES:
            schema, namespace = self._definition(schema, place)
            place = replace(place, namespace=namespace)
        properties: dict[str, Any] = schema if isinstance(schema, dict) else {"type": schema}
        kind, logical = properties.get("type"), properties.get("logicalType")
        if isinstance(kind, dict) and logical is None:  # {"type": {"type": "string"}}, which Java also accepts
            return self._type(kind, place)
        if not isinstance(kind, str) or not isinstance(logical, str | None):
            raise self._error(place, f"schema {_name_of(schema)}", "The Avro schema is invalid")
        if kind in _NAMED:
            place = self._defined(properties, place)
        if (leaf := _LEAVES.get((kind, logical))) is not None:
            return leaf
        if (build := _BUILDERS.get((kind, logical))) is not None:
            return build(self, properties, place)
        name = f"type {kind}" if logical is None else f"logical type {logical} of {kind}"
        raise self._error(place, name, "A load cannot read this type")

    def record(self, properties: dict[str, Any], place: _Place) -> AvroType:
        fields: dict[str, Slot] = {}
        names: dict[str, str] = {}
        listed = properties.get("fields")
        if not isinstance(listed, list) or not listed:
            raise self._error(place, "record without fields", "Columns need at least one field")
        for each in listed:
            name = each.get("name") if isinstance(each, dict) else None
            if not isinstance(name, str) or not name:
                raise self._error(place, "field without a name", "The Avro schema is invalid")
            own = place.field(name)
            other = names.setdefault(name.lower(), name)
            if other != name or name in fields:
                raise self._error(own, f"name that field {other} has too", "Names must differ by more than case")
            fields[name] = self.slot(each.get("type"), own)
        return Record(fields, self._raw_record([each.raw for each in fields.values()]))

    def array(self, properties: dict[str, Any], place: _Place) -> AvroType:
        item = self.slot(properties.get("items"), place.field("element"))
        return _Array(item, {"type": "array", "items": item.raw})

    def map(self, properties: dict[str, Any], place: _Place) -> AvroType:
        value = self.slot(properties.get("values"), place.field("value"))
        return _Map(value, {"type": "array", "items": self._raw_record(["string", value.raw])})

    def boolean(self, _properties: dict[str, Any], _place: _Place) -> AvroType:
        return _Leaf(T.BooleanType(), self._raw_fixed(1), pa.binary(), _booleans)

    def enum(self, properties: dict[str, Any], place: _Place) -> AvroType:
        symbols = properties.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(each, str) for each in symbols):
            raise self._error(place, "enum without symbols", "The Avro schema is invalid")
        return _Leaf(T.StringType(), "int", pa.int32(), pa.array(symbols, pa.string()).take)

    def fixed(self, properties: dict[str, Any], place: _Place) -> AvroType:
        return _Leaf(T.BinaryType(), self._raw_fixed(self._size(properties, place)), pa.binary())

    def uuid(self, properties: dict[str, Any], place: _Place) -> AvroType:
        if self._size(properties, place) != _UUID_BYTES:
            raise self._error(place, "UUID that does not have 16 bytes", "The Avro schema is invalid")
        return _Leaf(T.StringType(), self._raw_fixed(_UUID_BYTES), pa.binary(), _uuids)

    def decimal(self, properties: dict[str, Any], place: _Place) -> AvroType:
        precision, scale = properties.get("precision"), properties.get("scale", 0)
        if not (_is_int(precision) and _is_int(scale) and 1 <= precision <= _MOST_DIGITS and 0 <= scale <= precision):
            problem = f"decimal of precision {precision} and scale {scale}"
            raise self._error(place, problem, f"Spark's decimals have 1 to {_MOST_DIGITS} digits")
        raw = "bytes" if properties["type"] == "bytes" else self._raw_fixed(self._size(properties, place))
        convert = partial(_decimals, precision=precision, scale=scale)
        return _Leaf(T.DecimalType(precision, scale), raw, pa.binary(), convert)

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

    def _definition(self, name: str, place: _Place) -> tuple[dict[str, Any], str]:
        definition = self.named.get(_full_name(name, place.namespace)) or self.named.get(name)
        if definition is None:
            raise self._error(place, f"type {name}", "The Avro schema does not define it")
        return definition

    def _raw_record(self, fields: list[object]) -> dict[str, object]:
        named = [{"name": f"f{at}", "type": each} for at, each in enumerate(fields)]
        return {"type": "record", "name": self._new_name(), "fields": named}

    def _raw_fixed(self, size: int) -> dict[str, object]:
        return {"type": "fixed", "name": self._new_name(), "size": size}

    def _new_name(self) -> str:
        self.types += 1
        return f"t{self.types}"

    def _error(self, place: _Place, problem: str, reason: str) -> UsageError:
        where = f"field {'.'.join(place.fields)}" if place.fields else "the schema"
        return UsageError(f"{self.file}: {where} has a {problem}. {reason}. Nothing was appended.")


def _is_null(schema: object) -> bool:
    return schema == "null" or (isinstance(schema, dict) and schema.get("type") == "null")


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _name_of(schema: object) -> str:
    if isinstance(schema, dict):
        return str(schema.get("name", schema.get("logicalType", schema.get("type"))))
    return "union" if isinstance(schema, list) else str(schema)


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _booleans(values: pa.Array) -> pa.Array:
    true, false = pc.equal(values, b"\1"), pc.equal(values, b"\0")
    if pc.all(pc.or_(true, false)).as_py() is False:
        raise ValueError("a boolean is neither 0 nor 1")
    return true


def _micros(millis: pa.Array) -> pa.Array:
    return pc.multiply_checked(millis, pa.scalar(1000, pa.int64()))


def _uuids(values: pa.Array) -> pa.Array:
    return pa.array([None if each is None else str(UUID(bytes=each)) for each in values.to_pylist()], pa.string())


def _decimals(values: pa.Array, precision: int, scale: int) -> pa.Array:
    bound = 10**precision

    def decimal(data: bytes | None) -> Decimal | None:
        if data is None:
            return None
        unscaled = int.from_bytes(data, "big", signed=True)
        if not data or not -bound < unscaled < bound:
            raise ValueError(f"a decimal is not within {precision} digits")
        return Decimal(f"{unscaled}E-{scale}")

    return pa.array(map(decimal, values.to_pylist()), pa.decimal128(precision, scale))


_LEAVES: Mapping[tuple[str, str | None], _Leaf] = {
    ("int", None): _Leaf(T.IntegerType(), "int", pa.int32()),
    ("int", "date"): _Leaf(T.DateType(), "int", pa.int32()),
    ("long", None): _Leaf(T.LongType(), "long", pa.int64()),
    ("long", "timestamp-millis"): _Leaf(T.TimestampType(), "long", pa.int64(), _micros),
    ("long", "timestamp-micros"): _Leaf(T.TimestampType(), "long", pa.int64()),
    ("long", "local-timestamp-millis"): _Leaf(T.TimestampNTZType(), "long", pa.int64(), _micros),
    ("long", "local-timestamp-micros"): _Leaf(T.TimestampNTZType(), "long", pa.int64()),
    ("float", None): _Leaf(T.FloatType(), "float", pa.float32()),
    ("double", None): _Leaf(T.DoubleType(), "double", pa.float64()),
    ("bytes", None): _Leaf(T.BinaryType(), "bytes", pa.binary()),
    ("string", None): _Leaf(T.StringType(), "string", pa.string()),
    ("string", "uuid"): _Leaf(T.StringType(), "string", pa.string()),
}
"""Types by kind and logical type."""
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
