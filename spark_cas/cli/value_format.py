"""Values of records as JSON, for ``--value-format``."""

import argparse
import base64
from collections.abc import Callable
from dataclasses import replace
from datetime import date, time
from math import isfinite

from spark_cas.cli.lines import Record, json_line, one_line
from spark_cas.core.errors import UnreadableRecordError
from spark_cas.programs.arguments import registry_settings
from spark_cas.programs.input.json_documents import compact, parse_line

Decode = Callable[[Record], Record]


def decoder_of(arguments: argparse.Namespace) -> Decode | None:
    """Return a function that replaces the value of a record by its JSON; None for text.

    The function raises UnreadableRecordError, with the position of the record, if the value has another format. For
    Avro, both also raise the errors of a schema registry.

    Raises:
        UsageError: The arguments contradict each other.
    """
    settings = registry_settings(arguments, uses_avro=arguments.value_format == "avro")
    if arguments.value_format == "avro":
        return _avro_decoder(dict(settings))
    return _json_value if arguments.value_format == "json" else None


def _avro_decoder(settings: dict[str, str]) -> Decode:
    from spark_cas.core.errors import ConditionalLogError
    from spark_cas.log.schema_registry import SchemaRegistry, at_place

    registry = SchemaRegistry(settings)

    def decode(record: Record) -> Record:
        if record.value is None:
            return record
        try:
            value = registry.decode(record.value, record.headers or ())
        except ConditionalLogError as error:
            raise at_place(error, record.partition, record.offset) from error
        return replace(record, value=json_line(_plain(value)).encode())

    return decode


def _plain(value: object) -> object:
    """Return an Avro value as JSON can have it: bytes in base64, times in ISO 8601, NaN and others as text."""
    match value:
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case bytes():
            return base64.b64encode(value).decode()
        case date() | time():
            return value.isoformat()
        case None | str() | int():
            return value
    return value if isinstance(value, float) and isfinite(value) else str(value)


def _json_value(record: Record) -> Record:
    if record.value is None:
        return record
    try:
        value = parse_line(record.value.decode().strip())
    except ValueError as error:
        raise UnreadableRecordError(
            f"partition {record.partition}, offset {record.offset}: the value is not JSON. Read it with "
            f"--value-format text, or start after the record.",
            partition=record.partition,
            offset=record.offset,
        ) from error
    return replace(record, value=one_line(compact(value)).encode())
