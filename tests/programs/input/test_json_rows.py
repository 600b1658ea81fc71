"""JSON files through Spark: the original bytes of each document, and exact values."""

import datetime as dt
import gzip
from decimal import Decimal

import pytest

from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.columns import quoted
from spark_cas.programs.input.json_rows import DOCUMENT, json_rows
from spark_cas.programs.input.parts import BAD, FILE, POSITION
from tests.long import full
from tests.programs.input.reading import message_of, rows_of, write_file

pytestmark = pytest.mark.spark


@pytest.fixture
def write(spark, tmp_path):
    return lambda name, data: write_file(tmp_path / name, data)


@pytest.fixture
def rows(spark):
    def rows(files, schema=None, *, select=(), paths=(), with_columns=True, **options):
        def frame():
            made = json_rows(spark, files, schema, options, paths=paths, with_columns=with_columns)
            return made.select(*select, FILE, POSITION) if select else made

        return rows_of(spark, files, frame)

    return rows


@pytest.fixture
def rejected(rows, write):
    def rejected(data, schema=None, **options):
        message = message_of(lambda: rows([write("bad.jsonl", data)], schema, **options))
        assert "/bad.jsonl" in message
        return message

    return rejected


NUMBERS = b'{"z":1.10,"y":1e400,"x":12345678901234567890.5,"b":true}'


def test_document_keeps_its_bytes_and_numbers_their_text(rows, write):
    lines = [NUMBERS, b'{ "z" : "\xc3\xa9" , "a":{"d":[1.0,null]},"n":null}']
    files = [write("a.jsonl", b"\xef\xbb\xbf" + lines[0] + b"\r\n\n  " + lines[1] + b" ")]
    assert rows(files, select=[DOCUMENT]) == [(bytearray(each),) for each in lines]
    assert rows(files, select=["z", "y", "x", "b", "a.d", "n"]) == [
        ("1.10", "1e400", "12345678901234567890.5", "true", None, None),
        ("é", None, None, None, ["1.0", None], None),
    ]


def test_paths_are_columns(rows, write):
    files = [write("a.jsonl.gz", gzip.compress(b'{"c":{"id":1.10}}\n{"c":{"id":"x"}}\n{"c":{"id":{ "a":1}}}\n{}\n'))]
    path = "$.c.id"
    expected = [("1.10",), ("x",), ('{ "a":1}',), (None,)]
    assert rows(files, select=[quoted(path)], paths=[path], with_columns=False) == expected
    with pytest.raises(UsageError):
        rows(files, paths=["c.id"], with_columns=False)


def test_typed_values(rows, write):
    schema = (
        "i BIGINT, d DECIMAL(20,1), f DOUBLE, g FLOAT, b BOOLEAN, t TIMESTAMP, n TIMESTAMP_NTZ, e DATE, "
        "s STRUCT<a: ARRAY<INT>, m: MAP<STRING, DECIMAL(3,1)>>, x STRING"
    )
    line = (
        b'{"i":9007199254740993,"d":"1234567890123456789.0","f":0.1,"g":"NaN","b":false,'
        b'"t":"2024-07-01T12:00:00.123456Z","n":"2024-07-01 12:00:00","e":"2024-02-29",'
        b'"s":{"a":[1,null],"m":{"k":12.5}},"x":{ "raw":1.0}, "other":1}'
    )
    [row] = rows([write("a.jsonl", line)], schema)
    assert row[:3] == (9007199254740993, Decimal("1234567890123456789.0"), 0.1)
    assert row[3] != row[3]
    assert row[4] is False
    assert row[5].timestamp() == dt.datetime(2024, 7, 1, 12, 0, 0, 123456, dt.UTC).timestamp()
    assert row[6:8] == (dt.datetime(2024, 7, 1, 12), dt.date(2024, 2, 29))  # noqa: DTZ001
    assert row[8] == ([1, None], {"k": Decimal("12.5")})
    assert row[9].replace(" ", "") == '{"raw":1.0}'


def test_pattern_of_dates(rows, write):
    files = [write("a.jsonl", b'{"d":"29.02.2024"}\n')]
    assert rows(files, "d DATE", select=["d"], dateFormat="dd.MM.yyyy") == [(dt.date(2024, 2, 29),)]


def test_file_of_several_lines_is_a_document_or_an_array(rows, write):
    documents = [b'{\n "id": 1.0\n}', b'{"id":2,\r\n"x":[]}']
    files = [
        write("a.json", documents[0]),
        write("b.json", b"\n[" + b" ,\n".join(documents) + b"]\n"),
        write("c.json", b"[]"),
    ]
    found = rows(files, select=[DOCUMENT, "id"], multiLine="true")
    assert found == [
        (bytearray(documents[0]), "1.0"),
        (bytearray(documents[0]), "1.0"),
        (bytearray(documents[1]), "2"),
    ]


def test_encoding(rows, write, rejected):
    data = '{"id":"é€"}\n{"id":"x"}\n'
    assert rows([write("a.jsonl", data.encode("utf-16"))], encoding="UTF-16", select=["id"]) == [("é€",), ("x",)]
    rejected(data.encode("utf-16"))


def test_bad_document_is_rejected_with_its_place(rejected):
    assert "line 3" in rejected(b'{"id":1}\n\n{"id":2}{"id":3}\n')
    assert "line 3" in rejected(b'{"id":1}\n\n{"id":2.5}\n', "id INT")
    assert "line 2" in rejected(b'{"id":1}\n{"id":{}}\n')
    assert "line 2" in rejected(b'[{"id":1},\n5]', multiLine="true")
    rejected(b'{"id":1}\n{"id":2}', multiLine="true")


BEYOND = {
    "number": b'{"id":"b","x":{"c":%s}}' % (b"9" * 1001),
    "name": b'{"id":"b","x":{"%s":1}}' % (b"n" * 50_001),
    "text": b'{"id":"b","x":["%s"]}' % (b"t" * 20_000_001),
    "levels": b'{"id":"b","x":%s1%s}' % (b"[" * 400, b"]" * 400),
}


@pytest.mark.parametrize("kind", ["number", "name", "levels", *full("text")])
def test_document_beyond_the_limits_of_the_parser_is_rejected(rows, write, rejected, kind):
    """Its fields would not become columns. Paths have no limits."""
    data = b'{"id":"a","x":null}\n' + BEYOND[kind] + b"\n"
    assert "line 2" in rejected(data)
    files = [write("a.jsonl", data)]
    assert rows(files, paths=["$.id"], select=[quoted("$.id")], with_columns=False) == [("a",), ("b",)]


def test_document_beyond_the_limits_is_a_bad_row(spark, write):
    """Both passes reject it. Otherwise the second one would drop the fields that the first one did not see."""
    deep = b'{"id":"b","x":{"c":1,"d":%s1%s}}\n' % (b"[" * 400, b"]" * 400)
    files = [write("a.jsonl", b'{"id":"a","x":{"c":1}}\n' + deep)]
    rows = json_rows(spark, files, None, {}, with_bad=True).select("id", BAD).collect()
    assert [(row.id, row[BAD] is None) for row in rows] == [("a", True), (None, False)]


def test_document_within_the_limits_keeps_its_fields(rows, write):
    deep = b"[" * 58 + b"1" + b"]" * 58
    files = [write("a.jsonl", b'{"x":{"%s":%s},"y":%s}\n' % (b"n" * 50_000, b"9" * 1000, deep))]
    ((x, y),) = rows(files, select=["x", "y"])
    assert x["n" * 50_000] == "9" * 1000
    for _ in range(58):
        (y,) = y
    assert y == "1"


def test_field_with_the_name_of_a_corrupt_record_keeps_its_value(rows, write):
    files = [write("a.jsonl", b'{"_corrupt_record":"a","n":1}\n{"_corrupt_record":"b","n":2}\n')]
    assert rows(files, select=["_corrupt_record"]) == [("a",), ("b",)]
    assert rows(files, "_corrupt_record STRING, n INT", select=["_corrupt_record"]) == [("a",), ("b",)]


@pytest.mark.parametrize("schema", ["id INT, m STRING", "ID INT", "id INT, s STRUCT<y: INT>"])
def test_field_that_no_document_has_is_rejected(rejected, schema):
    rejected(b'{"id":1,"s":{"x":1}}\n', schema)


@pytest.mark.parametrize("options", [{"allowComments": "true"}, {"mode": "PERMISSIVE"}, {"locale": "de-DE"}])
def test_option_that_is_not_honoured_is_rejected(spark, options):
    with pytest.raises(UsageError):
        json_rows(spark, [], None, options)
