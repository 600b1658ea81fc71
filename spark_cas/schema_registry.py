"""Avro records in the wire formats of a Confluent Schema Registry, as columns of a DataFrame."""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from io import BytesIO
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa

from spark_cas.core.errors import ConditionalLogError, SchemaError, UnreadableRecordError
from spark_cas.log.schema_registry import (
    EncodedRecord,
    RegisteredSchema,
    SchemaId,
    SchemaRegistry,
    Settings,
    at_place,
    avro_bytes,
    check_settings,
    parse_avro,
    read_avro,
    root_of,
)
from spark_cas.spark.supported import require_pyspark

with require_pyspark():
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own name for it
    from pyspark.sql import types as T  # noqa: N812 - likewise

    from spark_cas.programs.errors import UsageError
    from spark_cas.programs.input.avro_schema import parse_type
    from spark_cas.programs.input.columns import arrow_type
    from spark_cas.spark.schema import HEADERS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["decode", "encode", "latest", "payload", "schema_id", "with_schema_id"]

_LONGEST = 2**31 - 1
_WIDER: Mapping[type, tuple[type, ...]] = {
    T.IntegerType: (T.ByteType, T.ShortType),
    T.LongType: (T.ByteType, T.ShortType, T.IntegerType),
    T.FloatType: (T.ByteType, T.ShortType),
    T.DoubleType: (T.ByteType, T.ShortType, T.IntegerType, T.FloatType),
}
"""The types of Spark whose values another type represents exactly."""
_Convert = Callable[[Any], Any]
_Read = Callable[[BytesIO], Any]


def latest(subject: str, *, registry: Settings) -> RegisteredSchema:
    """Return the latest schema of a subject. Its text is ``schema.schema_str``.

    Args:
        subject: The subject, such as ``flights-value``, or one of its versions, such as ``flights-value@3``.
        registry: As in `decode`.

    Raises:
        SchemaError: The registry does not have it, or it is no Avro schema, or refers to another one.
        ConditionalLogError: The settings are wrong, or the registry cannot be read.
    """
    return SchemaRegistry(registry).schema_of(subject)


def schema_id(column: str) -> "Column":
    """Return a column with the schema id before each payload; null if a value does not begin with one."""
    number = F.conv(F.hex(F.substring(column, 2, 4)), 16, 10).cast("int")
    # In ANSI mode, the cast fails for a number above 2^31 - 1, which is no id.
    return F.when(F.hex(F.substring(column, 1, 5)).rlike("^00[0-7].{7}$"), number)


def payload(column: str) -> "Column":
    """Return a column with the Avro data after each schema id, for Spark's ``from_avro``."""
    return F.substring(column, 6, _LONGEST)


def with_schema_id(data: "Column", schema: RegisteredSchema) -> "Column":
    """Return a column with the id of a schema before the Avro data, such as the result of ``to_avro``."""
    return F.concat(F.lit(SchemaId("AVRO", schema.schema_id).id_to_bytes()), data)


def decode(df: "DataFrame", column: str = "value", *, subject: str, registry: Settings) -> "DataFrame":
    """Replace the encoded Avro records of a column by their values. Spark needs no jar.

    The result has the type of the subject's latest schema, also for records of other versions. A null stays null.
    Each worker reads the schemas of its records from the registry. If their GUIDs are in headers, read the log with
    ``includeHeaders``. A record that does not match fails the query with `[UNREADABLE_RECORD]`. The error has its
    partition and offset if ``df`` has these columns.

    Args:
        df: A batch or a stream, classic or Connect.
        column: The binary column. For ``key``, a GUID is in the header ``__key_schema_id``, otherwise in
            ``__value_schema_id``.
        subject: The subject, such as ``flights-value``, or one of its versions, such as ``flights-value@3``.
        registry: The URL of the registry, or the settings of confluent-kafka's ``SchemaRegistryClient``. Give
            secrets as references, such as ``env:NAME``.

    Raises:
        SchemaError: The registry has no such schema, or Spark has no type for it.
        ConditionalLogError: The settings are wrong, or the registry cannot be read.
    """
    settings = check_settings(registry)
    schema, spark_type = _schema_of(subject, settings)
    kind, text = arrow_type(spark_type), str(schema.schema.schema_str)

    def read(batch: pa.RecordBatch) -> pa.Array:
        client = _worker_client(settings)
        named: dict[str, Any] = {}
        reader = parse_avro(text, subject, named)
        convert = _converter(root_of(reader), _DECODED, named)
        exact: dict[str, _Read] = {}

        def decode_row(row: int) -> pa.Scalar:
            data = batch[column][row].as_py()
            if data is None:
                return pa.scalar(None, kind)
            headers = batch["headers"][row].as_py() if "headers" in batch.schema.names else None
            pairs = [(each["key"], each["value"]) for each in headers or () if each is not None]
            record = client.record_of(data, pairs, is_key=column == "key")
            if record.text not in exact:
                exact[record.text] = _exact_reader(record)
            value = record.read(exact[record.text])
            if record.text != text:
                value = record.read(lambda payload: read_avro(payload, record.schema, reader))
            try:
                return pa.scalar(value if record.text == text else convert(value), kind)
            except (ValueError, TypeError, pa.ArrowException) as error:
                problem = f"Spark cannot represent a record in the types of subject {subject!r}: {error}."
                raise UnreadableRecordError(problem) from error

        return pa.array(_each(batch, decode_row), kind)

    return _mapped(df, column, spark_type, read)


def encode(
    df: "DataFrame", column: str = "value", *, subject: str, registry: Settings, in_header: bool = False
) -> "DataFrame":
    """Replace the values of a column by Avro records with the latest schema of a subject. Spark needs no jar.

    Equal values become equal bytes. A null stays null. Only the driver uses the registry. Call it before `route`.

    Args:
        df: A batch or a stream, classic or Connect.
        column: For a record, a struct with its fields, such as ``struct("*").alias("value")``. A field that has a
            default in the schema may be missing.
        subject: As in `decode`. If a rerun compares the rows, name a version.
        registry: As in `decode`.
        in_header: Whether the GUID of the schema is in a header: ``__key_schema_id`` for the column ``key``,
            otherwise ``__value_schema_id``. By default its id is before the payload.

    Raises:
        SchemaError: The registry has no such schema, or the column has other fields or types. A query fails with
            this error for a value that does not fit.
        ConditionalLogError: The settings are wrong, or the registry cannot be read.
    """
    schema, spark_type = _schema_of(subject, registry)
    _require_fit(df.schema[column].dataType, spark_type, column, subject)
    own = SchemaId("AVRO", schema.schema_id, schema.guid)
    if in_header and schema.guid is None:
        raise SchemaError("the schema registry is too old for schemas in headers. Encode without in_header.")
    name = "__key_schema_id" if column == "key" else "__value_schema_id"
    df = _with_header(df, name, own.guid_to_bytes() if in_header else None)
    prefix, text = b"" if in_header else own.id_to_bytes(), str(schema.schema.schema_str)

    def write(batch: pa.RecordBatch) -> pa.Array:
        named: dict[str, Any] = {}
        parsed = parse_avro(text, subject, named)
        convert = _converter(root_of(parsed), _ENCODED, named)

        def encoded(row: int) -> bytes | None:
            value = batch[column][row]
            if not value.is_valid:
                return None
            try:
                return prefix + avro_bytes(convert(value.as_py()), parsed)
            except Exception as error:  # fastavro raises exceptions of many types
                problem = f"a row does not fit the schema of subject {subject!r}: {_in_short(error)}. Correct it."
                raise SchemaError(problem) from error

        return pa.array(_each(batch, encoded), pa.binary())

    return _mapped(df, column, T.BinaryType(), write)


def _schema_of(subject: str, settings: Settings) -> tuple[RegisteredSchema, T.DataType]:
    schema = latest(subject, registry=settings)
    try:
        return schema, parse_type(str(schema.schema.schema_str), f"subject {subject}").spark
    except UsageError as error:
        raise SchemaError(str(error)) from error


def _exact_reader(record: EncodedRecord) -> _Read:
    """Return a function that reads data in the schema of a record, as `pyarrow.array` takes it.

    It rejects the invalid data that fastavro would change, such as a map that has a key twice, or a decimal that has
    more digits than its type.
    """
    try:
        kind = parse_type(record.text, record.label)
    except UsageError as error:
        raise UnreadableRecordError(str(error)) from error
    raw = parse_avro(json.dumps(kind.raw), record.label, {})
    return lambda payload: kind.convert(read_avro(payload, raw))


_clients: dict[str, SchemaRegistry] = {}


def _worker_client(settings: Mapping[str, Any]) -> SchemaRegistry:
    """Return the client of this process, so that the tasks of a worker read a schema once."""
    name = repr(sorted(settings.items()))
    if name not in _clients:
        _clients[name] = SchemaRegistry(settings)
    return _clients[name]


def _mapped(
    df: "DataFrame", column: str, kind: T.DataType, convert: Callable[[pa.RecordBatch], pa.Array]
) -> "DataFrame":
    """Return the rows with another column in the place of one."""

    def mapped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.set_column(batch.schema.get_field_index(column), column, convert(batch))

    fields = [T.StructField(column, kind) if each.name == column else each for each in df.schema]
    return df.mapInArrow(mapped, T.StructType(fields))


def _each(batch: pa.RecordBatch, convert: Callable[[int], Any]) -> Iterator[Any]:
    """Convert each row. An error has the partition and the offset of its row, if the batch has these columns."""
    for row in range(batch.num_rows):
        try:
            yield convert(row)
        except ConditionalLogError as error:
            partition, offset = (
                batch[name][row].as_py() if name in batch.schema.names else None for name in ("partition", "offset")
            )
            raise at_place(error, partition, offset) from error


def _with_header(df: "DataFrame", name: str, value: bytes | None) -> "DataFrame":
    """Return the rows without an earlier header of this name, and with a new one if there is a value."""
    if "headers" not in df.columns and value is None:
        return df
    headers = F.array().cast(HEADERS)
    if "headers" in df.columns:
        headers = F.coalesce(F.filter("headers", lambda each: ~each["key"].eqNullSafe(F.lit(name))), headers)
    own = F.array(F.struct(F.lit(name).alias("key"), F.lit(value).alias("value")))
    return df.withColumn("headers", headers if value is None else F.concat(headers, own))


def _require_fit(actual: T.DataType, expected: T.DataType, place: str, subject: str) -> None:
    """Raise SchemaError if a type of Spark has values that the type of the schema does not represent exactly."""
    fits = actual == expected or type(actual) in _WIDER.get(type(expected), ())
    match actual, expected:
        case T.StructType(), T.StructType():
            extra = {each.name for each in actual} - {each.name for each in expected}
            if extra:
                raise SchemaError(
                    f"column {place} has fields that the schema of subject {subject!r} does not have: "
                    f"{', '.join(sorted(extra))}. Nothing was encoded. Remove or rename them."
                )
            for each in actual:
                _require_fit(each.dataType, expected[each.name].dataType, f"{place}.{each.name}", subject)
            fits = True
        case T.ArrayType(), T.ArrayType():
            _require_fit(actual.elementType, expected.elementType, f"{place}[]", subject)
            fits = True
        case T.MapType(), T.MapType() if isinstance(actual.keyType, T.StringType):
            _require_fit(actual.valueType, expected.valueType, f"{place}{{}}", subject)
            fits = True
        case T.DecimalType(), T.DecimalType():
            digits = (expected.precision - expected.scale) - (actual.precision - actual.scale)
            fits = digits >= 0 and expected.scale >= actual.scale
    if not fits:
        raise SchemaError(
            f"column {place} has type {actual.simpleString()}, and the schema of subject {subject!r} has "
            f"{expected.simpleString()}. Nothing was encoded. Cast the column."
        )


def _converter(kind: Any, leaves: Mapping[str, _Convert], named: Mapping[str, Any]) -> _Convert:  # noqa: ANN401
    """Return the function that converts the values of a schema, as fastavro has parsed it, by their logical types."""
    if isinstance(kind, str):
        return _converter(named[kind], leaves, named) if kind in named else _same
    if isinstance(kind, list):
        (inner,) = (_converter(each, leaves, named) for each in kind if each != "null")
        return lambda value: None if value is None else inner(value)
    if kind["type"] == "record":
        fields = {each["name"]: _converter(each["type"], leaves, named) for each in kind["fields"]}
        return lambda row: {name: convert(row[name]) for name, convert in fields.items() if name in row}
    if kind["type"] == "array":
        item = _converter(kind["items"], leaves, named)
        return lambda items: [*map(item, items)]
    if kind["type"] == "map":
        each, as_map = _converter(kind["values"], leaves, named), leaves["map"]
        return lambda value: {name: each(item) for name, item in as_map(value).items()}
    return leaves.get(kind.get("logicalType", ""), _same)


def _same(value: object) -> object:
    return value


def _map(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a map of Arrow as a dict."""
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a map has a key twice")
    return result


def _uuid(value: str) -> str:
    if str(UUID(value)) != value.lower():
        raise ValueError("a UUID must have the form 8-4-4-4-12")
    return value


def _whole_millis(value: datetime) -> datetime:
    if value.microsecond % 1000:
        raise ValueError("a timestamp has microseconds, and the schema has milliseconds")
    return value


def _require(kind: type) -> _Convert:
    """Return a function that rejects a number where the latest schema has a time, because its unit is not known."""

    def checked(value: object) -> object:
        if not isinstance(value, kind):
            raise TypeError(f"found {type(value).__name__} instead of {kind.__name__}")
        return value

    return checked


_ENCODED: Mapping[str, _Convert] = {
    "map": _map,
    "uuid": _uuid,
    "timestamp-millis": _whole_millis,
    "local-timestamp-millis": _whole_millis,
}
_DECODED: Mapping[str, _Convert] = {
    "map": _same,
    "uuid": str,
    "date": _require(date),
    **{f"{each}timestamp-{unit}": _require(datetime) for each in ("", "local-") for unit in ("millis", "micros")},
}


def _in_short(error: Exception) -> str:
    """Return the field that fastavro found invalid, or the text of another exception."""
    problems = getattr(error, "errors", None)
    return f"field {problems[0].field}" if problems else f"{type(error).__name__}: {error}"
