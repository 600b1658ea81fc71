"""Validation of the columns of reads and writes before a task runs, without a JVM."""

from dataclasses import replace

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_cas.core.errors import LayoutChangedError, NotRoutedError, OptionError, SchemaError
from spark_cas.core.plan import Layout
from spark_cas.spark.schema import (
    HEADERS,
    OFFSETS,
    PROGRESS,
    RECORDS,
    RECORDS_AND_HEADERS,
    Mark,
    check_not_overwrite,
    check_read_schema,
    check_write_schema,
    read_schema,
)

MARK = Mark(partitions=4, layout_epoch=0)


def frame(*, without=(), mark=MARK, **changed):
    kinds = {"key": BinaryType(), "value": BinaryType(), "partition": IntegerType(), **changed}
    marks = {"partition": mark.metadata()} if mark else {}
    return StructType([StructField(n, kind, metadata=marks.get(n)) for n, kind in kinds.items() if n not in without])


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"key": StringType(), "value": StringType()},
        {"key": StringType("UTF8_LCASE")},
        {"headers": HEADERS, "timestamp": TimestampType()},
        {"headers": ArrayType(HEADERS.elementType, containsNull=False)},
        {"offset": LongType(), "topic": StringType(), "timestampType": IntegerType()},
        {"expected_offset": LongType()},
    ],
)
def test_accepted_columns_of_a_write(changed):
    assert check_write_schema(frame(**changed), routed=False) == MARK
    in_order = replace(MARK, sorted=True, options=("job", "compare"))
    assert check_write_schema(frame(mark=in_order, **changed), routed=False) == in_order


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (frame(vlaue=BinaryType()), "Did you mean value?"),
        (frame(Key=BinaryType()), "Did you mean key?"),
        (frame(secret=StringType()), "'secret'"),
        (frame(without=("key",)), "column key (binary or string) is missing"),
        (frame(without=("value",)), "column value (binary or string) is missing"),
        (frame(key=LongType()), "must be binary or string, found bigint"),
        (frame(value=NullType()), "must be binary or string, found void"),
        (frame(partition=LongType()), "must be int, found bigint"),
        (frame(timestamp=TimestampNTZType()), "must be timestamp, found timestamp_ntz"),
        (frame(timestamp=LongType()), "must be timestamp, found bigint"),
        (
            frame(expected_offset=IntegerType()),
            "column expected_offset must be bigint, found int. Nothing was appended. Cast it",
        ),
        (frame(expected_ofset=LongType()), "Did you mean expected_offset?"),
        (frame(headers=MapType(StringType(), BinaryType())), "found map<string,binary>"),
        (frame(headers=MapType(StringType(), BinaryType())), "map_entries(headers)"),
        (frame(value=StructType([StructField("a", StringType())])), "found struct<a:string>"),
        (frame(value=StructType([StructField("a", StringType())])), "to_json(value)"),
        (frame(value=ArrayType(LongType())), "to_json(value)"),
        (frame(key=MapType(StringType(), LongType())), "to_json(key)"),
        (
            frame(
                headers=ArrayType(StructType([StructField("k", StringType()), StructField("value", BinaryType())]))
            ),
            "must be array<struct<key:string,value:binary>>, found array<struct<k:string,value:binary>>",
        ),
        (StructType([*frame().fields, StructField("key", StringType())]), "there twice"),
    ],
)
def test_columns_that_a_write_refuses(schema, said):
    with pytest.raises(SchemaError) as caught:
        check_write_schema(schema, routed=True)
    assert said in str(caught.value)


def test_column_topic_for_a_directory_is_rejected_unless_from_a_read():
    with pytest.raises(SchemaError, match="the frame has a column topic"):
        check_write_schema(frame(topic=StringType()), routed=False, on_brokers=False)
    read = frame(topic=StringType(), offset=LongType())
    assert check_write_schema(read, routed=False, on_brokers=False) == MARK


def test_a_frame_that_was_not_routed_is_refused_naming_route():
    for schema in (frame(mark=None), frame(without=("partition",))):
        with pytest.raises(NotRoutedError, match=r"spark_cas\.route"):
            check_write_schema(schema, routed=False)
    with pytest.raises(NotRoutedError, match=r"spark_cas\.route"):
        check_write_schema(frame(without=("partition",)), routed=True)
    assert check_write_schema(frame(mark=None), routed=True) is None


def test_a_mark_that_is_none_of_ours_is_no_mark():
    strange: list[dict[str, object]] = [{"spark_cas": 4}, {"spark_cas": {"partitions": "4"}}, {"other": {}}]
    for metadata in strange:
        schema = StructType([*frame(without=("partition",))]).add("partition", IntegerType(), metadata=metadata)
        assert check_write_schema(schema, routed=True) is None


def test_a_mark_must_be_that_of_the_layout():
    MARK.require(Layout("log", 0, 4))
    with pytest.raises(LayoutChangedError, match="Route the rows again"):
        MARK.require(Layout("log", 1, 8))
    with pytest.raises(NotRoutedError, match="4 partitions, but the log has 8"):
        MARK.require(Layout("log", 0, 8))


def test_overwrite_is_refused():
    check_not_overwrite(overwrite=False)
    with pytest.raises(OptionError, match=r"\.mode\('append'\)"):
        check_not_overwrite(overwrite=True)


def test_the_columns_of_a_read():
    assert read_schema("records", include_headers=False) == RECORDS
    assert read_schema("records", include_headers=True).fieldNames()[-1] == "headers"
    assert read_schema("offsets", include_headers=True) == OFFSETS
    assert read_schema("progress", include_headers=False) == PROGRESS
    for view, schema in (("records", RECORDS_AND_HEADERS), ("offsets", OFFSETS), ("progress", PROGRESS)):
        check_read_schema(schema, view)
    check_read_schema(StructType([RECORDS["offset"], RECORDS["key"]]), "records")
    check_read_schema(StructType([StructField("offset", LongType(), nullable=False)]), "records")


@pytest.mark.parametrize(
    ("schema", "view", "said"),
    [
        ("ofset bigint", "records", "Did you mean offset?"),
        ("start_offset bigint", "records", "no column 'start_offset'"),
        ("key binary", "offsets", "no column 'key'"),
        ("key string", "records", "has type binary, but the schema of the read has string"),
        ("offset int", "records", "has type bigint, but the schema of the read has int"),
        ("key binary not null", "records", "can have nulls, but the schema of the read has NOT NULL"),
        ("key binary, key binary", "records", "only once"),
        ("", "records", "at least one column"),
    ],
)
def test_columns_that_a_read_does_not_have(schema, view, said):
    given = StructType()
    for column in filter(None, schema.split(", ")):
        name, kind, *rest = column.split(" ")
        kinds = {"bigint": LongType(), "binary": BinaryType(), "string": StringType(), "int": IntegerType()}
        given = given.add(name, kinds[kind], nullable=not rest)
    with pytest.raises(SchemaError) as caught:
        check_read_schema(given, view)
    assert said in str(caught.value)
