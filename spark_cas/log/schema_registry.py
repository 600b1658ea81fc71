"""The schemas of a Confluent Schema Registry, and records in its two wire formats.

A record has the id of its schema either before the payload, as a zero byte and four bytes, or as a GUID in a header.
"""

import json
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from http import HTTPStatus
from io import BytesIO
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

from spark_cas.core.errors import (
    AccessDeniedError,
    ConditionalLogError,
    OptionError,
    SchemaError,
    StorageError,
    UnreadableRecordError,
)
from spark_cas.log import timing
from spark_cas.log.kafka.settings.sasl import is_loopback
from spark_cas.log.secret_references import resolved

try:
    from confluent_kafka.schema_registry import (
        RegisteredSchema,
        Schema,
        SchemaRegistryClient,
        SchemaRegistryError,
        dual_schema_id_deserializer,
    )
    from confluent_kafka.schema_registry.serde import SchemaId
    from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError
    from fastavro import parse_schema, schemaless_reader, schemaless_writer
    from fastavro.read import LOGICAL_READERS
    from fastavro.validation import validate
except ImportError as missing:
    raise OptionError(
        "a schema registry needs the client of confluent-kafka, and fastavro. Run: pip install 'spark-cas[registry]'"
    ) from missing

__all__ = [
    "RegisteredSchema",
    "SchemaId",
    "SchemaRegistry",
    "Settings",
    "at_place",
    "avro_bytes",
    "check_settings",
    "parse_avro",
    "root_of",
]

Settings = str | Mapping[str, Any]
"""The URL of a registry, or the settings of confluent-kafka's ``SchemaRegistryClient``."""
_SECRETS = ("basic.auth.user.info", "bearer.auth.client.id", "bearer.auth.client.secret", "bearer.auth.token")
_RESOLVED = (*_SECRETS, "proxy", "ssl.key.password")
"""Settings that may be references to secrets."""
_NUMBERS = ("cache.capacity", "max.retries", "retries.max.wait.ms", "retries.wait.ms", "timeout")
_VERSION = re.compile(r"(?P<subject>.+)@(?P<version>[1-9][0-9]*)")
ROOT = "spark_cas_root"
"""The name of a record that contains a schema, and of its one field."""
_Result = TypeVar("_Result")
_Error = TypeVar("_Error", bound=ConditionalLogError)


def check_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings of a client, with references in place of secrets.

    Raises OptionError if a secret is in the URL, or would be sent unencrypted to another machine.
    """
    result: dict[str, Any] = {"url": settings} if isinstance(settings, str) else dict(settings)
    # The client has no timeout by default.
    result.setdefault("timeout", timing.current().longest_request)
    result |= {name: int(result[name]) for name in _NUMBERS if str(result.get(name)).isdecimal()}  # from text
    try:
        urls = [*map(urlsplit, str(result.get("url", "")).split(","))]
    except ValueError:
        raise OptionError("the URL of the schema registry is not valid. Expected https://host:port.") from None
    for each in urls:
        if each.username is not None:
            raise OptionError(
                "the URL of the schema registry has a user. Set basic.auth.user.info to a reference, env:NAME, "
                "file:PATH or function:package.module:function, to USER:PASSWORD."
            )
        if (
            each.scheme == "http"
            and any(name in result for name in _SECRETS)
            and not is_loopback(each.hostname or "")
        ):
            raise OptionError(
                "a login at the schema registry over http:// would send its secret unencrypted to another machine. "
                "Use https://."
            )
    return result


class SchemaRegistry:
    """A client of a registry, which keeps the schemas that it has read. Raises OptionError for wrong settings."""

    def __init__(self, settings: Settings) -> None:
        values = check_settings(settings)
        values |= {name: resolved(name, values[name]) for name in _RESOLVED if isinstance(values.get(name), str)}
        try:
            self._client = SchemaRegistryClient(values)
        except (OSError, TypeError, ValueError) as error:  # the text of the exception may contain a value
            wrong = [name for name in values if name in str(error)] or ["url"]
            raise OptionError(
                f"the schema registry has an unknown or wrong setting: {', '.join(wrong)} ({type(error).__name__}). "
                f"Use the settings of confluent-kafka's SchemaRegistryClient."
            ) from None
        self._schemas: dict[int | UUID, tuple[str, Any]] = {}

    def schema_of(self, subject: str) -> RegisteredSchema:
        """Return the latest Avro schema of a subject, or that of a version: ``SUBJECT@3``.

        Raises SchemaError if there is none, and the errors of a registry that cannot be read as `record_of`.
        """
        match = _VERSION.fullmatch(subject)
        arguments: tuple[Any, ...] = (match["subject"], int(match["version"])) if match else (subject,)
        label = f"the schema of subject {subject!r}"
        result = _request(label, SchemaError, lambda: self._client.get_version(*arguments))
        _avro_text(result.schema, label, SchemaError)
        return result

    def with_version(self, subject: str) -> str:
        """Return the name of a subject with its version, by default the latest one. Raises as `schema_of`."""
        return subject if _VERSION.fullmatch(subject) else f"{subject}@{self.schema_of(subject).version}"

    def record_of(
        self, data: bytes, headers: Iterable[tuple[str | None, bytes | None]], *, is_key: bool = False
    ) -> "EncodedRecord":
        """Read the schema of a key or value, from the data and the headers of its record.

        Raises:
            UnreadableRecordError: The data is in neither wire format, or the registry does not have the schema.
            AccessDeniedError: The registry rejected the login.
            StorageError: The registry cannot be reached, or failed.
        """
        schema_id = SchemaId("AVRO")
        named: list[tuple[str, str | bytes | None]] = [(key, value) for key, value in headers if key is not None]
        context = SerializationContext("", MessageField.KEY if is_key else MessageField.VALUE, named)
        try:
            payload = dual_schema_id_deserializer(data, context, schema_id)
        except (SerializationError, ValueError, struct.error) as error:
            raise UnreadableRecordError(
                f"the {context.field} is in neither wire format of a schema registry. It has {len(data)} bytes and "
                f"begins with {data[:5].hex() or 'none'}, and no valid header has its schema. Read it as text, with "
                f"its headers, or start after the record."
            ) from error
        key: Any = schema_id.guid if schema_id.id is None else schema_id.id
        return EncodedRecord(context.field, f"schema {key}", payload.read(), *self._writer_schema(key))

    def decode(self, data: bytes, headers: Iterable[tuple[str | None, bytes | None]]) -> Any:  # noqa: ANN401
        """Return the value of a record in the types of its schema. Raises as `record_of` and `EncodedRecord.read`."""
        record = self.record_of(data, headers)
        return record.read(lambda payload: read_avro(payload, record.schema))

    def _writer_schema(self, key: int | UUID) -> tuple[str, Any]:
        """Return a schema as text, and as fastavro needs it."""
        if key not in self._schemas:
            label = f"schema {key}"
            if isinstance(key, int):
                schema = _request(label, UnreadableRecordError, lambda: self._client.get_schema(key))
            else:
                schema = _request(label, UnreadableRecordError, lambda: self._client.get_schema_by_guid(str(key)))
            text = _avro_text(schema, label, UnreadableRecordError)
            self._schemas[key] = text, parse_avro(text, label, {})
        return self._schemas[key]


@dataclass(frozen=True, slots=True)
class EncodedRecord:
    """The Avro data of a key or value, and its schema."""

    field: str
    label: str
    """The name of the schema for errors."""
    payload: bytes
    text: str
    """The schema as text."""
    schema: Any
    """The schema as fastavro needs it."""

    def read(self, read: Callable[[BytesIO], _Result]) -> _Result:
        """Return the result of a function that reads the payload.

        Raises UnreadableRecordError if the function raises an error, or does not read all bytes.
        """
        content = BytesIO(self.payload)
        try:
            result = read(content)
            if content.read(1):
                raise ValueError("bytes follow the value")  # noqa: TRY301 - as if fastavro had checked it
        except Exception as error:  # fastavro raises exceptions of many types
            raise UnreadableRecordError(
                f"the {self.field} does not match its {self.label}, or that schema does not fit the requested one "
                f"({type(error).__name__}: {error}). Read with a compatible schema, or start after the record."
            ) from error
        return result


def parse_avro(text: str, name: str, named: dict[str, Any]) -> Any:  # noqa: ANN401 - as fastavro
    """Return a schema as fastavro needs it, and add its named types to ``named``. Raises SchemaError.

    The result is a record with the one field `ROOT` of this schema. Such a record has the same data as its field, and
    fastavro parses a record only once.
    """
    try:
        root = {"name": ROOT, "type": json.loads(text)}
        result = parse_schema({"type": "record", "name": ROOT, "fields": [root]}, named_schemas=named)
    except Exception as error:
        raise SchemaError(f"{name} is not a valid Avro schema ({type(error).__name__}).") from error
    _convert_defaults(named)
    return result


def root_of(parsed: Any) -> Any:  # noqa: ANN401 - as fastavro
    """Return the schema of `ROOT` in a result of `parse_avro`."""
    return parsed["fields"][0]["type"]


def _convert_defaults(named: Mapping[str, Any]) -> None:
    """Convert the defaults of all fields from JSON to values of fastavro, which uses them unchanged.

    A default that Python cannot represent is removed, so that only records without the field fail.
    """
    original = deepcopy(named)
    for record in named.values():
        for field in record.get("fields", ()):
            if "default" in field:
                try:
                    field["default"] = _from_json(field["type"], field["default"], original)
                except Exception:  # noqa: BLE001 - fastavro raises exceptions of many types
                    del field["default"]


def _from_json(kind: Any, value: Any, named: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as fastavro
    """Convert the JSON of a default. Raises exceptions of many types, also for a union of several types."""
    if isinstance(kind, list):
        if value is None:
            return None
        (kind,) = (each for each in kind if each != "null")
    if isinstance(kind, str):
        kind = named.get(kind, {"type": kind})
    match kind["type"]:
        case "record":
            fields = ((each["name"], each) for each in kind["fields"])
            return {
                name: _from_json(each["type"], value[name] if name in value else each["default"], named)
                for name, each in fields
            }
        case "array":
            return [_from_json(kind["items"], each, named) for each in value]
        case "map":
            return {name: _from_json(kind["values"], each, named) for name, each in value.items()}
        case "bytes" | "fixed":
            value = value.encode("latin-1")
    convert = LOGICAL_READERS.get(f"{kind['type']}-{kind.get('logicalType')}")
    return value if convert is None else convert(value, kind, kind)


def read_avro(payload: BytesIO, schema: Any, reader: Any = None) -> Any:  # noqa: ANN401 - as fastavro
    """Return a value in the types of the reader, by default those of its schema. Raises exceptions of many types."""
    result: Any = schemaless_reader(payload, schema, reader)
    return result[ROOT]


def avro_bytes(value: object, parsed: Any) -> bytes:  # noqa: ANN401 - as fastavro
    """Return the Avro data of a value, without a schema id. Raises an exception of any type if it does not fit."""
    record = {ROOT: value}
    validate(record, parsed)  # the writer would replace some invalid values
    content = BytesIO()
    schemaless_writer(content, parsed, record, strict_allow_default=True)
    return content.getvalue()


def at_place(error: _Error, partition: int | None, offset: int | None) -> _Error:
    """Return the error with the position of its record, if it is known."""
    if partition is None or offset is None:
        return error
    message = f"partition {partition}, offset {offset}: {error.message}"
    return error.with_message(message, partition=partition, offset=offset)


def _request(label: str, missing: type[ConditionalLogError], request: Callable[[], _Result]) -> _Result:
    """Return the reply to a request. Raises ``missing`` if the registry does not have the schema."""
    try:
        return request()
    except SchemaRegistryError as error:
        reply = f"{label} (HTTP {error.http_status_code}, error code {error.error_code})"
        if error.http_status_code == HTTPStatus.NOT_FOUND:
            raise missing(f"the schema registry does not have {reply}. Check the name, and the registry.") from error
        if error.http_status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            fix = "Check the login, such as basic.auth.user.info, and the rights of its user."
            raise AccessDeniedError(f"the schema registry refused {reply}. {fix}") from error
        raise StorageError(f"the schema registry failed to return {reply}. Retry later.") from error
    except Exception as error:  # those of the HTTP client, and of the token
        raise StorageError(
            f"the schema registry cannot be reached, so {label} was not read ({type(error).__name__}). Check its URL "
            f"and the network, then retry."
        ) from error


def _avro_text(schema: Schema, label: str, unsupported: type[ConditionalLogError]) -> str:
    if schema.schema_type != "AVRO" or schema.references or schema.schema_str is None:
        kind = "refers to other schemas" if schema.references else f"has the type {schema.schema_type}"
        raise unsupported(f"{label} {kind}. Only Avro schemas without references are supported.")
    return schema.schema_str
