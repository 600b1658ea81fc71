"""Schemas of Avro files: the resulting columns, and the types that a load rejects."""

import json

import pytest

from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.avro_schema import parse_schema
from spark_cas.programs.input.columns import merged_columns
from tests.programs.input.avro_bytes import record


def parsed(schema):
    return parse_schema(json.dumps(schema), "file:/f.avro").spark


def column(kind):
    return parsed(record(v=kind))["v"].dataType.simpleString()


def rejected(schema, *named):
    with pytest.raises(UsageError) as raised:
        parsed(schema)
    for each in ("file:/f.avro", *named):
        assert each in str(raised.value)


def logical(kind, name, **others):
    return {"type": kind, "logicalType": name, **others}


def fixed(size, **others):
    return {"type": "fixed", "name": "F", "size": size, **others}


ENUM = {"type": "enum", "name": "E", "symbols": ["A"]}
POINT = {"type": "record", "name": "p.Point", "fields": [{"name": "x", "type": "int"}, {"name": "c", "type": ENUM}]}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("int", "int"),
        ("long", "bigint"),
        ("float", "float"),
        ("double", "double"),
        ("boolean", "boolean"),
        ("string", "string"),
        ("bytes", "binary"),
        (fixed(3), "binary"),
        (ENUM, "string"),
        ({"type": "string", "avro.java.string": "String"}, "string"),
        ({"type": {"type": "string"}}, "string"),
        ({"type": "array", "items": ["null", "int"]}, "array<int>"),
        ({"type": "map", "values": POINT}, "map<string,struct<x:int,c:string>>"),
        (logical("bytes", "decimal", precision=5), "decimal(5,0)"),
        (fixed(4, logicalType="decimal", precision=9, scale=9), "decimal(9,9)"),
        (logical("int", "date"), "date"),
        (logical("long", "timestamp-millis"), "timestamp"),
        (logical("long", "timestamp-micros"), "timestamp"),
        (logical("long", "local-timestamp-millis"), "timestamp_ntz"),
        (logical("long", "local-timestamp-micros"), "timestamp_ntz"),
        (logical("string", "uuid"), "string"),
        (fixed(16, logicalType="uuid"), "string"),
    ],
)
def test_type(kind, expected):
    assert column(kind) == expected
    assert column(["null", kind]) == column([kind, "null"]) == column([kind]) == expected
    assert not parsed(record(v=kind))["v"].nullable
    assert not parsed(record(v=[kind]))["v"].nullable
    assert parsed(record(v=["null", kind]))["v"].nullable


def test_named_types_are_found_by_namespace():
    schema = record(a=POINT, b="p.Point", c=["null", "p.E"])
    assert parsed(schema).simpleString() == "struct<a:struct<x:int,c:string>,b:struct<x:int,c:string>,c:string>"
    rejected(record(a=POINT, b="Point"), "field b", "Point")
    rejected(record(a=POINT, b="E"), "field b")


@pytest.mark.parametrize(
    "kind",
    [
        "null",
        ["null"],
        [],
        ["int", "string"],
        ["null", "int", "string"],
        ["null", "null", "int"],
        ["null", ["null", "int"]],
        logical("int", "time-millis"),
        logical("long", "time-micros"),
        logical("long", "timestamp-nanos"),
        logical("int", "timestamp-millis"),
        logical("long", "date"),
        logical("string", "custom"),
        logical("long", 7),
        fixed(12, logicalType="duration"),
        fixed(15, logicalType="uuid"),
        fixed(0),
        fixed(-1),
        fixed(True),
        fixed("3"),
        fixed(4, logicalType="decimal"),
        logical("bytes", "decimal", precision=39),
        logical("bytes", "decimal", precision=3, scale=4),
        logical("bytes", "decimal", precision=3, scale=-1),
        {"type": "enum", "name": "E"},
        {"type": "fixed", "size": 3},
        {"type": "array"},
        {"type": "map"},
        {"type": ["null", "int"]},
        {"type": "record", "name": "R2"},
        {"type": "record", "name": "R2", "fields": []},
        {"type": "error", "name": "R2", "fields": [{"name": "x", "type": "int"}]},
        "Unknown",
        None,
        7,
    ],
)
def test_type_that_is_rejected(kind):
    rejected(record(v=record(inner=kind) | {"name": "Other"}), "v.inner")


def test_recursive_record_is_rejected():
    rejected(record(v="int", children={"type": "array", "items": "Row"}), "children.element")


@pytest.mark.parametrize("names", [("a", "A"), ("a", "a"), ("Ä", "ä")])
def test_names_that_differ_only_in_case_are_rejected(names):
    fields = [{"name": each, "type": "int"} for each in names]
    rejected({"type": "record", "name": "R", "fields": fields}, names[1])


@pytest.mark.parametrize("schema", ["long", ["null", record(a="int")], {"type": "array", "items": "int"}, [], 7, {}])
def test_schema_that_is_no_record_is_rejected(schema):
    rejected(schema)


def test_second_definition_is_rejected():
    rejected(record(a=ENUM, b=ENUM | {"symbols": ["B"]}), "field b")


def test_schema_that_expands_without_bound_is_rejected():
    kind = record(x="int")
    for level in range(40):
        kind = {
            "type": "record",
            "name": f"L{level}",
            "fields": [{"name": "a", "type": kind}, {"name": "b", "type": kind["name"]}],
        }
    rejected(kind)
    for _ in range(60):
        kind = {"type": "array", "items": kind if _ else "int"}
    rejected(record(v=kind), "field v")


def merged(*schemas):
    return merged_columns((f"file:/{at}", parsed(each)) for at, each in enumerate(schemas))


def test_fields_of_some_files_become_nullable():
    first = record(a="int", n=record(x="int") | {"name": "N"})
    second = record(b="string", n=record(y={"type": "map", "values": "int"}, x=["null", "int"]) | {"name": "N"})
    result = merged(first, second)
    assert result.simpleString() == "struct<a:int,n:struct<x:int,y:map<string,int>>,b:string>"
    assert [each.nullable for each in result] == [True, False, True]
    assert [each.nullable for each in result["n"].dataType] == [True, True]
    nested = merged(
        record(v={"type": "array", "items": "int"}), record(v={"type": "array", "items": ["int", "null"]})
    )
    assert nested["v"].dataType.containsNull


@pytest.mark.parametrize(
    ("first", "second", "place"),
    [
        ("int", "long", "v"),
        ("float", "double", "v"),
        ("string", "bytes", "v"),
        (logical("bytes", "decimal", precision=4, scale=1), logical("bytes", "decimal", precision=4, scale=2), "v"),
        (logical("long", "timestamp-micros"), logical("long", "local-timestamp-micros"), "v"),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "string"}, "v.element"),
        ({"type": "map", "values": "int"}, {"type": "map", "values": POINT}, "v.value"),
        (record(x="int") | {"name": "N"}, record(x="string") | {"name": "N"}, "v.x"),
        (record(x="int") | {"name": "N"}, record(X="int") | {"name": "N"}, "v.X"),
        (record(x="int") | {"name": "N"}, "int", "v"),
    ],
)
def test_conflict_names_file_and_field(first, second, place):
    with pytest.raises(UsageError) as raised:
        merged(record(v=first), record(v=first), record(v=second))
    assert "file:/2" in str(raised.value)
    assert f"field {place} " in str(raised.value)
