"""Both wire formats of a schema registry, its errors, and its settings. The registry is a test double."""

import json

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from spark_cas.core.errors import AccessDeniedError, OptionError, SchemaError, StorageError, UnreadableRecordError
from spark_cas.log.schema_registry import SchemaRegistry, at_place, check_settings, parse_avro, read_avro
from tests.support import token_provider
from tests.support.schema_registry import guid_of, registry_double

FLIGHT = {"type": "record", "name": "Flight", "fields": [{"name": "tail", "type": "string"}]}
# Version 2 adds a field with a default.
FLIGHT_2 = FLIGHT | {"fields": [*FLIGHT["fields"], {"name": "seats", "type": "int", "default": -1}]}
# The string "N1": its length 2 as a zigzag number, and two bytes.
PAYLOAD = bytes.fromhex("04 4e 31")
PREFIXED = bytes.fromhex("00 00000001 04 4e 31")
GUID = bytes.fromhex("01 89791762 2336 4186 9674 299b90a80001")
CANARY = "hunter2"


@pytest.fixture
def double():
    with registry_double() as double:
        assert double.register("flights-value", FLIGHT) == 1
        yield double


@pytest.fixture
def registry(double):
    return SchemaRegistry({"url": double.url, "max.retries": 0})


def test_both_wire_formats_are_decoded(registry, double):
    assert registry.decode(PREFIXED, []) == {"tail": "N1"}
    assert registry.decode(PAYLOAD, [("other", b"\1"), ("__value_schema_id", GUID)]) == {"tail": "N1"}
    assert registry.record_of(PAYLOAD, [("__key_schema_id", GUID)], is_key=True).payload == PAYLOAD
    # The header has precedence.
    with pytest.raises(UnreadableRecordError):
        registry.decode(PREFIXED, [("__value_schema_id", GUID)])
    assert double.requests == [("GET", "/schemas/ids/1")], "a schema is read once"


def test_a_guid_alone_is_enough(registry, double):
    assert registry.decode(PAYLOAD, [("__value_schema_id", GUID)]) == {"tail": "N1"}
    assert double.requests == [("GET", f"/schemas/guids/{guid_of(1)}")]


@pytest.mark.parametrize("in_header", [False, True])
def test_records_of_confluents_serializer_are_decoded(registry, double, in_header):
    conf = {"schema.id.serializer": header_schema_id_serializer} if in_header else {}
    with SchemaRegistryClient({"url": double.url}) as client:
        serializer = AvroSerializer(client, json.dumps(FLIGHT_2), conf=conf)
        context = SerializationContext("flights", MessageField.VALUE, [])
        data = serializer({"tail": "N1", "seats": 90}, context)
    assert len(data) == len(PAYLOAD) + 2 + (0 if in_header else 5)
    assert registry.decode(data, context.headers) == {"tail": "N1", "seats": 90}


def test_an_older_record_has_the_defaults_of_the_requested_schema(registry, double):
    double.register("flights-value", FLIGHT_2)
    schema = registry.schema_of("flights-value")
    assert (schema.version, schema.schema_id, schema.guid) == (2, 2, guid_of(2))
    assert registry.schema_of("flights-value@1").schema_id == 1
    reader = parse_avro(schema.schema.schema_str, "", {})
    record = registry.record_of(PREFIXED, [])
    assert record.read(lambda payload: read_avro(payload, record.schema, reader)) == {"tail": "N1", "seats": -1}


@pytest.mark.parametrize(
    ("data", "headers"),
    [
        (b"", []),
        (b"\0\0\0", []),
        (b'{"tail": 1}', []),
        (b"\1\0\0\0\1\4N1", []),
        (PAYLOAD, [("__value_schema_id", b"")]),
        (PAYLOAD, [("__value_schema_id", b"\2" + GUID[1:])]),
        (PAYLOAD, [("__value_schema_id", GUID[:9])]),
        (PAYLOAD, [("__key_schema_id", GUID)]),
        (PREFIXED[:-1], []),
        (PREFIXED + b"\0", []),
        (b"\0\0\0\0\7" + PAYLOAD, []),
        (PAYLOAD, [("__value_schema_id", GUID[:-1] + b"\7")]),
    ],
    ids=[
        *("empty", "cut prefix", "JSON", "magic byte 1 and no GUID", "empty header", "magic byte 2", "cut GUID"),
        *("GUID of the key", "cut payload", "longer payload", "unknown id", "unknown GUID"),
    ],
)
def test_other_records_are_unreadable(registry, data, headers):
    with pytest.raises(UnreadableRecordError):
        registry.decode(data, headers)


@pytest.mark.parametrize(
    "schema",
    [
        {"schema": "{", "schemaType": "PROTOBUF"},
        {"schema": json.dumps(FLIGHT), "references": [{"name": "a", "subject": "a", "version": 1}]},
    ],
)
def test_other_schemas_are_rejected(registry, double, schema):
    number = double.register("others", **schema)
    with pytest.raises(SchemaError):
        registry.schema_of("others")
    with pytest.raises(UnreadableRecordError):
        registry.decode(number.to_bytes(5, "big") + PAYLOAD, [])


def test_the_error_has_the_position_of_the_record(registry):
    with pytest.raises(UnreadableRecordError) as caught:
        registry.decode(b"", [])
    error = at_place(caught.value, 3, 17)
    assert (error.partition, error.offset) == (3, 17)
    assert "partition 3, offset 17" in error.message
    assert at_place(caught.value, None, 17).fields == {}


def test_each_failure_of_the_registry_has_its_error(registry, double):
    for subject in ("missing", "flights-value@9"):
        with pytest.raises(SchemaError, match=subject):
            registry.schema_of(subject)
    for failure, error in ((503, StorageError), (403, AccessDeniedError)):
        double.failure = failure
        with pytest.raises(error, match=str(failure)) as caught:
            registry.schema_of("flights-value")
        assert type(caught.value) is error


def test_a_registry_that_does_not_answer_is_an_error_of_storage(double):
    with registry_double() as stopped:
        registry = SchemaRegistry({"url": stopped.url, "max.retries": 0})
    with pytest.raises(StorageError) as caught:
        registry.decode(PREFIXED, [])
    assert type(caught.value) is StorageError


def test_a_login_is_a_reference_that_the_client_resolves(monkeypatch):
    with registry_double(login=f"loader:{CANARY}") as double:
        double.register("flights-value", FLIGHT)
        settings = {"url": double.url, "basic.auth.user.info": "env:REGISTRY_LOGIN", "max.retries": "0"}
        with pytest.raises(OptionError, match="REGISTRY_LOGIN"):
            SchemaRegistry(settings)
        assert CANARY not in str(check_settings(settings))
        monkeypatch.setenv("REGISTRY_LOGIN", f"loader:{CANARY}")
        assert SchemaRegistry(settings).schema_of("flights-value").schema_id == 1
        monkeypatch.setattr(token_provider, "password", lambda: f"loader:{CANARY}")
        called = settings | {"basic.auth.user.info": f"function:{token_provider.__name__}:password"}
        assert SchemaRegistry(called).schema_of("flights-value").schema_id == 1
        monkeypatch.setenv("REGISTRY_LOGIN", "loader:other")
        with pytest.raises(AccessDeniedError):
            SchemaRegistry(settings).schema_of("flights-value")


@pytest.mark.parametrize(
    "settings",
    [
        "",
        "registry:8081",
        f"https://loader:{CANARY}@registry",
        {"url": "http://registry:8081", "basic.auth.user.info": f"loader:{CANARY}"},
        {"url": "http://127.0.0.1:1,http://registry:8081", "bearer.auth.token": CANARY},
        {"url": "https://registry", "basic.auth.user.info": CANARY},
        {"url": "https://registry", "unknown": CANARY},
        {"url": "https://registry", "timeout": "1", "ssl.ca.location": f"/{CANARY}"},
        {"url": "https://registry", "max.retries": CANARY},
    ],
)
def test_wrong_settings_are_rejected_without_their_values(settings):
    with pytest.raises(OptionError) as caught:
        SchemaRegistry(settings)
    assert CANARY not in str(caught.value)
