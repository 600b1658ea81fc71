"""Avro columns in the wire formats of a schema registry, which is a test double: real Spark, and real brokers."""

import json
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql import functions as sf

from spark_cas import error_from_text, route, schema_registry
from spark_cas.core.errors import AccessDeniedError, SchemaError, StorageError, UnreadableRecordError
from tests.kafka.clients import create_topic
from tests.long import full
from tests.support.schema_registry import registry_double

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

FLIGHT = {"type": "record", "name": "Flight", "fields": [{"name": "tail", "type": "string"}]}
FLIGHT_2 = FLIGHT | {"fields": [*FLIGHT["fields"], {"name": "seats", "type": ["null", "int"], "default": None}]}
PREFIXED = bytes.fromhex("00 00000001 04 4e 31")
GUID = bytes.fromhex("01 89791762 2336 4186 9674 299b90a80001")
UUID = "ab345678-1234-5678-1234-567812345678"


@pytest.fixture
def double():
    with registry_double() as double:
        double.register("flights-value", FLIGHT)
        double.register("flights-key", '"string"')
        yield double


def one_field(kind):
    return {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}


def logical(kind, logical_type, **others):
    return {"type": kind, "logicalType": logical_type, **others}


LOCAL = datetime(2024, 3, 31, 2, 30, 0, 1)  # noqa: DTZ001 - a time without a zone
EXACT: list[tuple[Any, str, list[Any]]] = [
    ("boolean", "BOOLEAN", [True, False]),
    ("int", "INT", [-(2**31), 2**31 - 1]),
    ("int", "SMALLINT", [7]),
    ("long", "BIGINT", [-(2**63), 2**63 - 1]),
    ("long", "INT", [5]),
    ("float", "FLOAT", [0.5, float("inf")]),
    ("double", "DOUBLE", [0.1, 5e-324]),
    ("double", "FLOAT", [0.5]),
    ("bytes", "BINARY", [b"", b"\xff"]),
    ("string", "STRING", ["", "Søren\0"]),
    (["null", "string"], "STRING", [None, "a"]),
    (["long", "null"], "BIGINT", [None, 5]),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "STRING", ["B"]),
    ({"type": "fixed", "name": "F", "size": 2}, "BINARY", [b"ab"]),
    (logical("string", "uuid"), "STRING", [UUID]),
    (logical("int", "date"), "DATE", [date(1582, 10, 5), date(9999, 12, 31)]),
    (logical("long", "timestamp-millis"), "TIMESTAMP", [datetime(1960, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)]),
    (logical("long", "timestamp-micros"), "TIMESTAMP", [datetime(2024, 3, 31, 1, 30, 0, 1, tzinfo=UTC)]),
    (logical("long", "local-timestamp-micros"), "TIMESTAMP_NTZ", [LOCAL]),
    (logical("bytes", "decimal", precision=38, scale=2), "DECIMAL(10,1)", [Decimal("-1.5"), Decimal(0)]),
    (logical("fixed", "decimal", name="D", size=3, precision=4, scale=2), "DECIMAL(4,2)", [Decimal("-99.99")]),
    ({"type": "array", "items": ["null", "int"]}, "ARRAY<INT>", [[], [1, None]]),
    ({"type": "map", "values": logical("string", "uuid")}, "MAP<STRING, STRING>", [{}, {"b": UUID, "a": UUID}]),
    ({"type": "array", "items": one_field("long")}, "ARRAY<STRUCT<f: BIGINT>>", [[Row(f=1), Row(f=2)]]),
]


def test_values_come_back_exactly(spark, double):
    fields = [{"name": f"f{at}", "type": kind} for at, (kind, _, _) in enumerate(EXACT)]
    text = json.dumps({"type": "record", "name": "All", "fields": fields})
    double.register("all", text)
    columns = ", ".join(f"f{at}: {spark_type}" for at, (_, spark_type, _) in enumerate(EXACT))
    rows = [Row(value=tuple(values[at % len(values)] for _, _, values in EXACT)) for at in range(2)]
    frame = spark.createDataFrame(rows, f"value STRUCT<{columns}>")
    encoded = schema_registry.encode(frame, subject="all", registry=double.url)
    back = schema_registry.decode(encoded, subject="all", registry=double.url)
    assert [tuple(row.value) for row in back.collect()] == [tuple(row.value) for row in frame.collect()]


MICROSECOND = datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "spark_type", "value"),
    [
        ("int", "INT", None),
        pytest.param("boolean", "BOOLEAN", None, marks=pytest.mark.full),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "STRING", "C"),
        pytest.param({"type": "fixed", "name": "F", "size": 2}, "BINARY", b"abc", marks=pytest.mark.full),
        pytest.param(logical("string", "uuid"), "STRING", "{" + UUID + "}", marks=pytest.mark.full),
        pytest.param(logical("long", "timestamp-millis"), "TIMESTAMP", MICROSECOND, marks=pytest.mark.full),
        (
            {"type": "map", "values": logical("long", "timestamp-millis")},
            "MAP<STRING, TIMESTAMP>",
            {"a": MICROSECOND},
        ),
    ],
    ids=lambda each: str(each)[:40],
)
def test_a_value_that_does_not_fit_fails_the_query(spark, double, kind, spark_type, value):
    double.register("r", one_field(kind))
    frame = spark.createDataFrame([Row(value=Row(f=value))], f"value STRUCT<f: {spark_type}>")
    with pytest.raises(Exception, match="SCHEMA") as caught:
        schema_registry.encode(frame, subject="r", registry=double.url).collect()
    assert isinstance(error_from_text(str(caught.value)), SchemaError)


def test_a_map_with_a_key_twice_fails_the_query(spark, double):
    double.register("r", one_field({"type": "map", "values": "int"}))
    kind = pa.struct([("f", pa.map_(pa.string(), pa.int32()))])
    frame = spark.createDataFrame(pa.table({"value": pa.array([{"f": [("a", 1), ("a", 2)]}], kind)}))
    with pytest.raises(Exception, match="a map has a key twice"):
        schema_registry.encode(frame, subject="r", registry=double.url).collect()


@pytest.mark.parametrize(
    ("kind", "spark_type"),
    [
        ("int", "BIGINT"),
        ("float", "DOUBLE"),
        ("double", "BIGINT"),
        ("string", "BINARY"),
        ("long", "TIMESTAMP"),
        (logical("long", "timestamp-micros"), "BIGINT"),
        (logical("bytes", "decimal", precision=4, scale=2), "DECIMAL(4,1)"),
        (logical("bytes", "decimal", precision=4, scale=2), "DECIMAL(4,3)"),
        ({"type": "array", "items": "int"}, "ARRAY<BIGINT>"),
        ({"type": "map", "values": "int"}, "MAP<INT, INT>"),
        (one_field("int") | {"name": "S"}, "STRUCT<f: INT, g: INT>"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_a_type_that_may_lose_values_is_rejected_before_a_query(spark, double, kind, spark_type):
    double.register("r", one_field(kind))
    frame = spark.createDataFrame([], f"value STRUCT<f: {spark_type}>")
    with pytest.raises(SchemaError):
        schema_registry.encode(frame, subject="r", registry=double.url)


def test_a_missing_field_has_its_default_and_others_must_be_there(spark, double):
    double.register("flights-value", FLIGHT_2)
    frame = spark.createDataFrame([Row(value=Row(tail="N1"))])
    encoded = schema_registry.encode(frame, subject="flights-value", registry=double.url)
    assert encoded.collect() == [Row(value=b"\0\0\0\0\3\4N1\0")]
    frame = spark.createDataFrame([Row(value=Row(seats=1))], "value STRUCT<seats: INT>")
    with pytest.raises(Exception, match="SCHEMA"):
        schema_registry.encode(frame, subject="flights-value", registry=double.url).collect()


# A type, a default in JSON, and its value.
DEFAULTS: list[tuple[Any, Any, Any]] = [
    ("bytes", "\u00ff", b"\xff"),
    ({"type": "fixed", "name": "F", "size": 2}, "\u00ffa", b"\xffa"),
    ("F", "\u0000\u00e9", b"\0\xe9"),
    (["bytes", "null"], "\u00ff", b"\xff"),
    ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
    ({"type": "map", "values": "F"}, {"k": "\u00ff\u00ff"}, {"k": b"\xff\xff"}),
    (
        {"type": "record", "name": "S", "fields": [{"name": "b", "type": "bytes", "default": "\u00fe"}]},
        {},
        Row(b=b"\xfe"),
    ),
    (logical("int", "date"), 1, date(1970, 1, 2)),
    (logical("long", "timestamp-millis"), 1, datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)),
    ([logical("long", "timestamp-micros"), "null"], 1, datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
    (logical("long", "local-timestamp-micros"), 1, datetime(1970, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001 - as above
    (logical("bytes", "decimal", precision=4, scale=2), "\u00ff", Decimal("-0.01")),
    (logical("fixed", "decimal", name="D", size=2, precision=4, scale=2), "\u0000\u00ff", Decimal("2.55")),
    (logical("string", "uuid"), UUID, UUID),
]


@pytest.mark.parametrize("is_array", [False, True])
def test_defaults_have_their_types(spark, double, is_array):
    """Defaults are JSON: bytes are text of their code points, and dates, times and decimals are numbers or bytes."""
    added = [{"name": f"f{at}", "type": kind, "default": text} for at, (kind, text, _) in enumerate(DEFAULTS)]
    # Python has no such time.
    never = {"name": "never", "type": logical("long", "timestamp-micros"), "default": 2**63 - 1}
    for fields in ([], added, [*added, never]):
        each = FLIGHT | {"fields": [*FLIGHT["fields"], *fields]}
        double.register("r", {"type": "array", "items": each} if is_array else each)

    def in_place(row):
        return Row(value=[row] if is_array else row)

    encoded = [
        schema_registry.encode(
            spark.createDataFrame([in_place(Row(tail="N1"))]), subject=f"r@{version}", registry=double.url
        )
        for version in (1, 2, 3)
    ]
    decoded = schema_registry.decode(encoded[0].union(encoded[1]), subject="r@2", registry=double.url)
    row = in_place(("N1", *(value for _, _, value in DEFAULTS)))
    assert decoded.collect() == spark.createDataFrame([row, row], decoded.schema).collect()

    with pytest.raises(Exception, match="SCHEMA"):
        encoded[2].collect()
    with pytest.raises(Exception, match="UNREADABLE_RECORD"):
        schema_registry.decode(encoded[0], subject="r@3", registry=double.url).collect()


def test_a_number_is_not_taken_for_a_time(spark, double):
    """A version without the logical type, so the unit of its number is not known."""
    double.register("r", one_field("long"))
    double.register("r", one_field(logical("long", "timestamp-millis")))
    frame = spark.createDataFrame([Row(value=Row(f=5))])
    encoded = schema_registry.encode(frame, subject="r@1", registry=double.url)
    with pytest.raises(Exception, match="UNREADABLE_RECORD"):
        schema_registry.decode(encoded, subject="r", registry=double.url).collect()


@pytest.mark.parametrize("newer", [False, *full(True)], ids=["own schema", "newer schema"])
@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ({"type": "map", "values": "int"}, "04 0261 02 0261 04 00"),  # two entries of the key a
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "01"),  # the symbol -1
        pytest.param("boolean", "02", marks=pytest.mark.full),
        pytest.param(["null", "int"], "01", marks=pytest.mark.full),  # the type -1
        (logical("bytes", "decimal", precision=4, scale=2), "06 01e240"),  # 1234.56
    ],
    ids=lambda each: str(each)[:40],
)
def test_invalid_data_that_fastavro_would_change_fails_the_query(spark, double, kind, data, newer):
    double.register("r", one_field(kind))
    if newer:
        fields = [*one_field(kind)["fields"], {"name": "added", "type": "int", "default": 0}]
        double.register("r", one_field(kind) | {"fields": fields})
    frame = spark.createDataFrame([(bytes.fromhex("00 00000003" + data),)], "value BINARY")
    with pytest.raises(Exception, match="UNREADABLE_RECORD"):
        schema_registry.decode(frame, subject="r", registry=double.url).collect()


@pytest.mark.parametrize("in_header", [False, True])
def test_the_bytes_are_those_of_the_wire_format(spark, double, in_header):
    others = [("h", None), None, (None, b"\1")]
    old = [("__value_schema_id", b"old"), ("__key_schema_id", b"old"), *others]
    frame = spark.createDataFrame(
        [("N1", Row(tail="N1"), old), (None, None, None)],
        "key STRING, value STRUCT<tail: STRING>, headers ARRAY<STRUCT<key: STRING, value: BINARY>>",
    )
    frame = schema_registry.encode(frame, subject="flights-value", registry=double.url, in_header=in_header)
    frame = schema_registry.encode(frame, "key", subject="flights-key", registry=double.url, in_header=in_header)
    first, second = frame.collect()
    key_guid = GUID[:-1] + b"\2"
    if in_header:
        assert (first.key, first.value) == (b"\4N1", b"\4N1")
        assert first.headers == [*others, ("__value_schema_id", GUID), ("__key_schema_id", key_guid)]
    else:
        assert (first.key, first.value, first.headers) == (b"\0\0\0\0\2\4N1", PREFIXED, others)
    assert (second.key, second.value) == (None, None)
    for column in ("key", "value"):
        frame = schema_registry.decode(frame, column, subject=f"flights-{column}", registry=double.url)
    assert [(each.key, each.value) for each in frame.collect()] == [("N1", Row(tail="N1")), (None, None)]


def test_a_stream_is_decoded(spark, double, path, tmp_path):
    frame = spark.createDataFrame([Row(key="a", value=Row(tail="N1"))])
    options = {"path": path, "partitions": "2", "job": "load-1"}
    encoded = schema_registry.encode(frame, subject="flights-value", registry=double.url)
    route(encoded, options).write.format("conditional-log").mode("append").options(**options).save()
    stream = spark.readStream.format("conditional-log").option("startingOffsets", "earliest").load(path)
    flights = schema_registry.decode(stream, subject="flights-value", registry=double.url).select("value.tail")
    query = (
        flights.writeStream.format("memory").queryName("flights").option("checkpointLocation", str(tmp_path / "c"))
    )
    query.trigger(availableNow=True).start().awaitTermination()
    assert spark.table("flights").collect() == [Row(tail="N1")]


def test_each_failure_of_the_registry_has_its_error(spark, double):
    frame = spark.createDataFrame([Row(value=PREFIXED, partition=3, offset=17)])
    for failure, error in ((503, StorageError), (403, AccessDeniedError)):
        decoded = schema_registry.decode(
            frame, subject="flights-value", registry={"url": double.url, "max.retries": 0, "cache.capacity": failure}
        )
        double.failure = failure
        with pytest.raises(Exception, match="offset 17") as caught:
            decoded.collect()
        assert type(error_from_text(str(caught.value))) is error
        double.failure = None
    with pytest.raises(SchemaError):
        schema_registry.decode(frame, subject="missing", registry=double.url)
    double.register("union", ["string", "int"])
    with pytest.raises(SchemaError):
        schema_registry.decode(frame, subject="union", registry=double.url)


# The id 1, and others that have none: the last two have a number above that of an id.
VALUES = [PREFIXED, b"\0\0\0", b"{}123456", b"", None, b"\0\x80\0\0\0\2", b"\0\xff\xff\xff\xff\2"]


def test_the_columns_for_from_avro_and_to_avro(spark, double):
    frame = spark.createDataFrame([Row(value=each) for each in VALUES], "value BINARY")
    schema = schema_registry.latest("flights-value", registry=double.url)
    framed = schema_registry.with_schema_id(schema_registry.payload("value"), schema)
    rows = frame.select(schema_registry.schema_id("value"), schema_registry.payload("value"), framed).collect()
    assert [row[0] for row in rows] == [1, *[None] * (len(VALUES) - 1)]
    assert rows[0][1:] == (b"\4N1", PREFIXED)
    assert json.loads(str(schema.schema.schema_str)) == FLIGHT
    assert struct.unpack(">bI", PREFIXED[:5]) == (0, schema.schema_id)


# The fixture connect stays until the end of the module.
@pytest.mark.kafka
@pytest.mark.parametrize("session", ["spark", *full("connect")])
def test_rows_cross_a_broker(request, broker, double, session):
    spark = request.getfixturevalue(session)
    topic = create_topic(broker.bootstrap, 2)

    def write(rows, job):
        options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, "job": job}
        route(rows, options).write.format("conditional-log").mode("append").options(**options).save()

    def read():
        reader = spark.read.format("conditional-log").option("kafka.bootstrap.servers", broker.bootstrap)
        return reader.option("subscribe", topic).option("includeHeaders", "true").load()

    name = sf.concat(sf.lit("N"), "id")
    flights = spark.range(40).select(name.alias("key"), sf.struct(name.alias("tail")).alias("value"))
    for in_header in (False, True):
        encoded = schema_registry.encode(flights, subject="flights-value", registry=double.url, in_header=in_header)
        write(encoded, f"load-{in_header}")
    double.register("flights-value", FLIGHT_2)
    decoded = schema_registry.decode(read(), subject="flights-value", registry=double.url)
    rows = decoded.selectExpr("string(key) AS key", "value.tail", "value.seats").collect()
    assert sorted(row[:2] for row in rows) == sorted([(f"N{at}", f"N{at}") for at in range(40)] * 2)
    assert {row.seats for row in rows} == {None}

    # A record of another program.
    write(spark.createDataFrame([Row(key="N1", value="{}")]), "load-2")
    place = read().where("string(value) = '{}'").select("partition", "offset").collect()[0]
    with pytest.raises(Exception, match="UNREADABLE_RECORD") as caught:
        schema_registry.decode(read(), subject="flights-value", registry=double.url).collect()
    error = error_from_text(str(caught.value))
    assert isinstance(error, UnreadableRecordError)
    assert (error.partition, error.offset) == (place.partition, place.offset)
