"""Avro containers: each record exactly once with its values, or an error that names the file."""

import bz2
import io
import json
import lzma
import zlib

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cas.core.errors import UnreadableInputError
from spark_cas.programs.input import avro_files
from spark_cas.programs.input.avro_files import read_header, read_records
from spark_cas.programs.input.avro_schema import parse_schema
from spark_cas.programs.input.columns import arrow_type, merged_columns
from spark_cas.programs.input.parts import Part
from tests.programs.input.avro_bytes import ROW, SYNC, block, container, deflated, header, number, record, text


def rows(data):
    part = Part("file:/f.avro")
    head = read_header(part, data)
    parsed = parse_schema(head.schema, part.path, is_julian=head.is_julian)
    target = arrow_type(merged_columns([("", parsed.spark)]))
    result = []
    for values in read_records(part, data, head, parsed, target):
        values.validate(full=True)
        result += values.to_pylist()
    return result


def rejected(data):
    with pytest.raises(UnreadableInputError) as raised:
        rows(data)
    assert "file:/f.avro" in raised.value.message


IDS = [{"id": 1}, {"id": -2}, {"id": 2**63 - 1}]
DATA = b"".join(number(each["id"]) for each in IDS)


def test_bytes_that_were_made_by_hand():
    schema = b'{"type":"record","name":"R","fields":[{"name":"a","type":["null","string"]}]}'
    assert len(schema) == 77
    data = b"Obj\x01\x02\x16avro.schema\x9a\x01" + schema + b"\x00" + b"S" * 16
    data += b"\x04\x0a" + b"\x00" + b"\x02\x04\xc3\xa9" + b"S" * 16
    assert rows(data) == [{"a": None}, {"a": "é"}]


@pytest.mark.parametrize(
    ("codec", "compressed"),
    [
        ("null", bytes),
        ("deflate", deflated),
        ("bzip2", bz2.compress),
        ("xz", lzma.compress),
        ("zstandard", lambda each: pa.compress(each, codec="zstd", asbytes=True)),
        (
            "snappy",
            lambda each: pa.compress(each, codec="snappy", asbytes=True) + zlib.crc32(each).to_bytes(4, "big"),
        ),
    ],
)
def test_codec(codec, compressed):
    stored = compressed(DATA)
    head = header(ROW, codec=codec)
    assert rows(head + block(3, stored) + block(3, stored)) == IDS * 2
    for wrong in (stored[:-1], stored[:-5], stored[:2], b"", stored + b"\0", b"\xff" * 30):
        rejected(head + block(3, wrong))


def test_checksum_of_snappy_is_compared():
    stored = pa.compress(DATA, codec="snappy", asbytes=True)
    rejected(header(ROW, codec="snappy") + block(3, stored + b"\0\0\0\0"))


@pytest.mark.parametrize("codec", ["lz4", "brotli", "", "DEFLATE"])
def test_unknown_codec(codec):
    rejected(header(ROW, codec=codec) + block(3, DATA))


def test_file_without_rows_is_read():
    assert rows(header(ROW)) == []
    assert rows(header(ROW) + block(0, b"")) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"O",
        b"Obj\x01",
        b"Obj\x02" + header(ROW)[4:],
        b"PAR1" + b"\0" * 100 + b"PAR1",
        b"id\n1\n",
        header(ROW)[:-1],
        header(b"\xff"),
        header(b"{"),
        header(b"[" * 100_000),
        b"Obj\x01\x00" + SYNC,
        b"Obj\x01\x04" + (text("avro.schema") + text(json.dumps(ROW))) * 2 + b"\0" + SYNC,
    ],
)
def test_file_that_is_no_avro(data):
    part = Part("file:/f.avro")
    with pytest.raises(Exception, match=r"file:/f\.avro"):
        parse_schema(read_header(part, data).schema, part.path)


DATE, MILLIS, MICROS = (
    {"type": kind, "logicalType": name}
    for kind, name in (("int", "date"), ("long", "timestamp-millis"), ("long", "timestamp-micros"))
)
SINCE_1900 = -2_208_988_800_000


@pytest.mark.parametrize(
    ("kind", "first"), [(DATE, -141_427), (["null", MILLIS], SINCE_1900), (MICROS, SINCE_1900 * 1000)]
)
def test_times_in_the_julian_calendar_of_old_versions_of_spark_are_rejected(kind, first):
    prefix = number(1) if isinstance(kind, list) else b""
    for marks in ({"version": "2.4.8"}, {"version": "3.5.1", "legacyDateTime": ""}):
        metadata = {f"org.apache.spark.{name}": value for name, value in marks.items()}
        assert len(rows(container(record(x=kind), prefix + number(first), **metadata))) == 1
        rejected(container(record(x=kind), prefix + number(first - 1), **metadata))
    for metadata in ({}, {"org.apache.spark.version": "3.5.1"}):
        assert len(rows(container(record(x=kind), prefix + number(first - 1), **metadata))) == 1


def test_each_cut_is_rejected_except_between_blocks():
    head = header(ROW)
    data = head + block(3, DATA) + block(2, number(7) + number(300))
    whole = {len(head): [], len(head + block(3, DATA)): IDS}
    for end in range(len(data)):
        if end in whole:
            assert rows(data[:end]) == whole[end]
        else:
            rejected(data[:end])


@pytest.mark.parametrize(
    "blocks",
    [
        block(3, DATA, b"x" * 16),  # another sync marker
        block(2, DATA),  # fewer records than bytes
        block(4, DATA),
        block(2**60, DATA),
        block(-3, DATA),
        block(-3, b""),
        number(3) + number(-5) + DATA + SYNC,
        number(3) + number(2**62) + DATA + SYNC,
        block(3, DATA)[:-1] + b"x",
        block(3, DATA) + b"\x80",  # cut in the count of a block
        block(3, DATA) + b"\0",
    ],
)
def test_invalid_block(blocks):
    rejected(header(ROW) + blocks)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("boolean", b"\x02"),
        ("int", number(2**31)),
        ("string", number(2) + b"\xff\xff"),
        ("string", number(-1) + b"ab"),
        ("string", number(3) + b"\xed\xa0\x80"),
        (["null", "long"], number(-1) + b"\x02"),
        (["long", "null"], number(-2) + b"\x02"),
        (["null", "long"], number(2) + b"\x02"),
        (["null", "bytes"], number(-1) + b"a"),
        (["null", "bytes"], number(2) + b"a"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, number(-1)),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, number(2)),
        ({"type": "map", "values": "long"}, number(2) + text("k") + number(1) + text("k") + number(2) + b"\0"),
        ({"type": "array", "items": "long"}, number(2**40) + number(1)),
        ({"type": "long", "logicalType": "timestamp-millis"}, number(2**62)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 1}, text((100).to_bytes(2, "big"))),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 1}, text(b"")),
    ],
)
def test_value_that_its_type_excludes(kind, value):
    rejected(container(record(v=kind), value))


def test_values_beyond_python_datetime_stay_exact():
    micros = record(
        t={"type": "long", "logicalType": "timestamp-micros"},
        m={"type": "long", "logicalType": "local-timestamp-millis"},
        d={"type": "int", "logicalType": "date"},
    )
    data = container(micros, number(-(2**63)) + number(-(2**63) // 1000 + 1) + number(-(2**31)))
    part = Part("f")
    head = read_header(part, data)
    parsed = parse_schema(head.schema, "f")
    [values] = read_records(part, data, head, parsed, arrow_type(parsed.spark))
    assert values.field(0).cast(pa.int64()).to_pylist() == [-(2**63)]
    assert values.field(1).cast(pa.int64()).to_pylist() == [(-(2**63) // 1000 + 1) * 1000]
    assert values.field(2).cast(pa.int32()).to_pylist() == [-(2**31)]


def test_batches_are_bounded(monkeypatch):
    monkeypatch.setattr(avro_files, "_MOST_ROWS", 4)
    monkeypatch.setattr(avro_files, "_BATCH_BYTES", 6)
    part, data = Part("f"), header(ROW) + block(10, number(1) * 10) + block(4, number(2**40) * 4)
    head = read_header(part, data)
    parsed = parse_schema(head.schema, "f")
    sizes = [len(each) for each in read_records(part, data, head, parsed, arrow_type(parsed.spark))]
    assert sizes == [4, 4, 3, 1, 1, 1]


_VALUES = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(),
    "string": st.text(st.characters(exclude_categories=["Cs"])),
}
_PLAIN = st.sampled_from(sorted(_VALUES)).map(lambda name: (name, _VALUES[name]))


def _nested(inner):
    def union(each):
        return ["null", each[0]], st.none() | each[1]

    def array(each):
        return {"type": "array", "items": each[0]}, st.lists(each[1], max_size=3)

    def mapping(each):
        keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
        return {"type": "map", "values": each[0]}, st.dictionaries(keys, each[1], max_size=3)

    plain = inner.filter(lambda each: not isinstance(each[0], list))
    return inner.map(array) | inner.map(mapping) | plain.map(union)


_TYPES = st.recursive(_PLAIN, _nested, max_leaves=4)


@st.composite
def _files(draw):
    columns = {f"c{at}": each for at, each in enumerate(draw(st.lists(_TYPES, min_size=1, max_size=4)))}
    schema = record(**{name: each[0] for name, each in columns.items()})
    return schema, draw(
        st.lists(st.fixed_dictionaries({name: each[1] for name, each in columns.items()}), max_size=6)
    )


def _plain(value, kind):
    """Convert an Arrow value to the form that fastavro accepts: maps as dictionaries."""
    if value is None:
        return None
    if isinstance(kind, list):
        return _plain(value, kind[1])
    if isinstance(kind, dict):
        if kind["type"] == "map":
            return {key: _plain(each, kind["values"]) for key, each in value}
        return [_plain(each, kind["items"]) for each in value]
    return value


@given(_files(), st.sampled_from(["null", "deflate"]), st.integers(1, 200))
def test_values_of_generated_files(file, codec, interval):
    schema, expected = file
    content = io.BytesIO()
    fastavro.writer(content, schema, expected, codec=codec, sync_interval=interval)
    kinds = {each["name"]: each["type"] for each in schema["fields"]}
    found = [{name: _plain(value, kinds[name]) for name, value in row.items()} for row in rows(content.getvalue())]
    assert repr(found) == repr([{name: row[name] for name in kinds} for row in expected])
