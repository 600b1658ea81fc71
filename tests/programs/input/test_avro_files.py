"""Avro files through Spark: exact values in the order of each file, or an error that names the file."""

import datetime as dt
import io
import sys
from decimal import Decimal

import fastavro
import pytest

from spark_cas.core.errors import UnreadableInputError, error_from_text
from spark_cas.programs.errors import UsageError
from spark_cas.programs.input import avro_files
from spark_cas.programs.input.avro_files import avro_rows
from spark_cas.programs.input.avro_schema import parse_schema
from spark_cas.programs.input.listing import list_input
from spark_cas.programs.input.parts import FILE, POSITION
from tests.programs.input.avro_bytes import ROW, block, container, header, number, record, text

pytestmark = pytest.mark.spark

UTC = dt.UTC


@pytest.fixture
def write(spark, tmp_path):
    """A function that writes a file and returns it as the listing does."""

    def write(name, data):
        path = tmp_path / name
        path.write_bytes(data)
        return list_input([str(path)], spark).files[0]

    return write


def encoded(schema, rows, codec="null", **options):
    content = io.BytesIO()
    fastavro.writer(content, schema, rows, codec=codec, **options)
    return content.getvalue()


def rows(spark, files):
    return [row.asDict(recursive=True) for row in avro_rows(spark, files).orderBy(FILE, POSITION).collect()]


def values(spark, files):
    return [{name: each for name, each in row.items() if name not in (FILE, POSITION)} for row in rows(spark, files)]


def rejected(spark, files):
    with pytest.raises(Exception) as raised:
        avro_rows(spark, files).collect()
    found = raised.value if isinstance(raised.value, UnreadableInputError) else error_from_text(str(raised.value))
    assert isinstance(found, UnreadableInputError), raised.value
    return found.message


INNER = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "double"}]}
EVERY = record(
    i="int",
    b=["boolean", "null"],
    by="bytes",
    d={"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10},
    fd=["null", {"type": "fixed", "name": "FD", "size": 5, "logicalType": "decimal", "precision": 9, "scale": 2}],
    e={"type": "enum", "name": "E", "symbols": ["A", "B"]},
    dt={"type": "int", "logicalType": "date"},
    tm={"type": "long", "logicalType": "timestamp-millis"},
    tu=["null", {"type": "long", "logicalType": "timestamp-micros"}],
    lt={"type": "long", "logicalType": "local-timestamp-micros"},
    u={"type": "string", "logicalType": "uuid"},
    fx={"type": "fixed", "name": "FX", "size": 3},
    arr=["null", {"type": "array", "items": ["null", "long"]}],
    m=["null", {"type": "map", "values": ["null", INNER]}],
    n=["null", "Inner"],
    f="float",
)
FULL = {
    "i": -5,
    "b": True,
    "by": b"\0\xff",
    "d": Decimal("-1234567890123456789012345678.0123456789"),
    "fd": Decimal("-1.25"),
    "e": "B",
    "dt": dt.date(1582, 10, 10),
    "tm": dt.datetime(1969, 12, 31, 23, 59, 59, 999000, UTC),
    "tu": dt.datetime(2024, 10, 27, 1, 30, 0, 123456, UTC),
    "lt": dt.datetime(2024, 3, 31, 2, 30, 0, 1),  # noqa: DTZ001 - a time without a zone
    "u": "00112233-4455-6677-8899-AABBCCDDEEFF",
    "fx": b"abc",
    "arr": [1, None, -(2**63)],
    "m": {"k": {"x": 1.5}, "": None},
    "n": {"x": 0.1},
    "f": 1.5,
}
NULLS = FULL | dict.fromkeys(["b", "fd", "tu", "arr", "m", "n"])


def in_zone(row):
    """Convert timestamps as Spark does: without a zone, in the time zone of this machine."""
    return {
        name: each.astimezone().replace(tzinfo=None) if name in ("tm", "tu") and each else each
        for name, each in row.items()
    }


def test_values_of_every_type(spark, write):
    files = [write(f"{codec}.avro", encoded(EVERY, [FULL, NULLS], codec)) for codec in ("null", "deflate")]
    assert values(spark, files) == [in_zone(each) for each in [FULL, NULLS]] * 2


def test_timestamps_beyond_python_stay_exact(spark, write):
    schema = record(t={"type": "long", "logicalType": "timestamp-micros"}, d={"type": "int", "logicalType": "date"})
    file = write("a.avro", container(schema, number(2**62) + number(2**31 - 1), number(-(2**63)) + number(-(2**31))))
    exact = avro_rows(spark, [file]).selectExpr(POSITION, "unix_micros(t) AS t", "unix_date(d) AS d")
    found = [tuple(row)[1:] for row in exact.orderBy(POSITION).collect()]
    assert found == [(2**62, 2**31 - 1), (-(2**63), -(2**31))]


def test_position_is_the_number_of_the_record(spark, write):
    first = write("a.avro", encoded(ROW, [{"id": -each} for each in range(25_000)], "deflate", sync_interval=1000))
    second = write("b.avro", header(ROW))
    third = write("c.avro", container(ROW, number(7), number(7)))
    found = [(row[FILE], row[POSITION], row["id"]) for row in rows(spark, [first, second, third])]
    assert found == [*((0, each, -each) for each in range(25_000)), (2, 0, 7), (2, 1, 7)]


def test_fields_of_some_files_are_null_in_the_others(spark, write):
    inner = {"type": "record", "name": "N", "fields": [{"name": "x", "type": "int"}]}
    other = {"type": "record", "name": "M", "fields": [{"name": "y", "type": "string"}, {"name": "x", "type": "int"}]}
    first = write("1.avro", encoded(record(a="int", n=inner), [{"a": 1, "n": {"x": 2}}]))
    second = write("2.avro", encoded(record(n=["null", other], b="int"), [{"n": {"y": "q", "x": 3}, "b": 4}]))
    third = write("3.avro", encoded(record(n=["null", other], b="int"), [{"n": None, "b": 5}]))
    assert values(spark, [first, second, third]) == [
        {"a": 1, "n": {"x": 2, "y": None}, "b": None},
        {"a": None, "n": {"x": 3, "y": "q"}, "b": 4},
        {"a": None, "n": None, "b": 5},
    ]


def test_conflict_and_position_columns_are_rejected(spark, write):
    first = write("1.avro", container(record(a="int"), number(1)))
    second = write("2.avro", container(record(a="long"), number(1)))
    with pytest.raises(UsageError) as raised:
        avro_rows(spark, [first, second])
    assert second.path in str(raised.value)
    with pytest.raises(UsageError):
        avro_rows(spark, [write("3.avro", container(record(**{POSITION: "int"}), number(1)))])


@pytest.mark.parametrize("name", ["e[1].avro", "b%20c.avro", "a b+ü.avro", "s*r?.avro", "h#.avro", "x.avro.gz"])
def test_name_is_taken_literally(spark, write, name):
    write("e1.avro", container(ROW, number(2)))
    assert values(spark, [write(name, container(ROW, number(1)))]) == [{"id": 1}]


GOOD = container(ROW, number(1))


@pytest.mark.parametrize(
    "data", [b"", b"Obj", b"id\n1\n", header(ROW)[:-1], header(ROW, codec="lz4"), header(b"\xff")]
)
def test_invalid_header_is_rejected_before_tasks_read_rows(spark, write, data):
    good, bad = write("a.avro", GOOD), write("b.avro", data)
    with pytest.raises(UnreadableInputError) as raised:
        avro_rows(spark, [good, bad])
    assert bad.path in raised.value.message


@pytest.mark.parametrize(
    "data",
    [
        GOOD[:-1],
        GOOD + block(1, number(1), b"x" * 16),
        header(ROW, codec="deflate") + block(1, b"xyz"),
        container(record(v="boolean"), b"\x02"),
        container(record(v="string"), text(b"\xff")),
        container(
            record(d={"type": "int", "logicalType": "date"}),
            number(-719_164),
            **{"org.apache.spark.version": "2.4.8"},
        ),
    ],
)
def test_invalid_rows_are_rejected(spark, write, data):
    bad = write("b c.avro", data)
    assert bad.path in rejected(spark, [bad])


def test_file_that_changes_during_the_load_is_rejected(spark, write):
    file = write("a.avro", GOOD)
    frame = avro_rows(spark, [file])
    write("a.avro", container(record(ix="long"), number(1)))
    with pytest.raises(Exception, match="INPUT_UNREADABLE"):
        frame.collect()
    write("a.avro", GOOD + block(1, number(1)))
    with pytest.raises(Exception, match="INPUT_UNREADABLE"):
        frame.collect()
    with pytest.raises(UnreadableInputError):
        avro_rows(spark, [file])


def test_each_distinct_schema_is_parsed_once(spark, write, monkeypatch):
    files = [write(f"{at}.avro", container(record(**{f"c{at % 3}": "long"}), number(at))) for at in range(9)]
    paths = []

    def parse(schema, path):
        paths.append(path)
        return parse_schema(schema, path)

    monkeypatch.setattr(avro_files, "parse_schema", parse)
    frame = avro_rows(spark, files)
    assert paths == [each.path for each in files[:3]]
    assert frame.columns == ["c0", "c1", "c2", FILE, POSITION]


def test_missing_package_is_named(monkeypatch, spark, write):
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(UsageError, match=r'pip install "spark-cas\[avro\]"'):
        avro_rows(spark, [write("a.avro", GOOD)])
