"""CSV files through Spark: exact values, or an error that names the place."""

import bz2
import datetime as dt
import gzip
from decimal import Decimal

import pytest

from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.csv_rows import csv_rows
from spark_cas.programs.input.parts import FILE, POSITION
from spark_cas.programs.input.spark_files import whole_file_settings
from tests.programs.input.reading import message_of, rows_of, settings, write_file

pytestmark = pytest.mark.spark


@pytest.fixture
def write(spark, tmp_path):
    return lambda name, data: write_file(tmp_path / name, data)


@pytest.fixture
def rows(spark):
    def rows(files, schema=None, **options):
        return rows_of(spark, files, lambda: csv_rows(spark, files, schema, options))

    return rows


@pytest.fixture
def rejected(rows, write):
    def rejected(data, schema=None, **options):
        message = message_of(lambda: rows([write("bad.csv", data)], schema, **options))
        assert "/bad.csv" in message
        return message

    return rejected


def test_values_keep_their_bytes(rows, write):
    file = write("a.csv", b'\xef\xbb\xbfid,n\r\n"",\n,""\n"x\r\ny","p\rq"\r1,\x00\r\n\r\n"a""b", c \n\xef\xbb\xbf,2')
    assert rows([file]) == [
        ("", None),
        (None, ""),
        ("x\r\ny", "p\rq"),
        ("1", "\0"),
        ('a"b', " c "),
        ("\ufeff", "2"),
    ]


def test_hidden_name_and_unknown_locale_are_rejected(rows, write):
    with pytest.raises(UsageError):
        rows([write("_c.csv", b"id\n1\n")])
    with pytest.raises(UsageError):
        rows([write("a.csv", b"id\n1\n")], locale="de_DE", schema="id INT")


def test_files_are_never_split_and_keep_their_order(spark, rows, write):
    """The largest file exceeds the bytes that Spark reads in a task, and there are many small files."""
    large = b"id,n\n" + b"".join(b'%d,"x\n%s"\n' % (row, b"y" * 990) for row in range(6000))
    small = [write(f"s{number}.csv", b"id,n\nsmall,%d\n" % number) for number in range(20)]
    files = [*small[:10], write("large.csv", large), *small[10:]]
    with settings(spark, {"spark.sql.files.maxPartitionBytes": "1000000"}):
        found = rows(files)
    assert [row[1] for row in found[:10]] == [str(number) for number in range(10)]
    assert [row[0] for row in found[10:-10]] == [str(row) for row in range(6000)]


def test_file_is_split_if_no_record_has_a_line_break(spark, write):
    data = b"id,n\n" + b"".join(b"%d,%s\n" % (row, b"y" * 90) for row in range(60_000))
    frame = csv_rows(spark, [write("a.csv", data)], None, {"multiLine": "false"})
    with settings(
        spark, {"spark.sql.files.maxPartitionBytes": "1000000", "spark.sql.files.openCostInBytes": "1000000"}
    ):
        assert frame.rdd.getNumPartitions() > 1
        found = frame.orderBy(FILE, POSITION).collect()
    assert [row.id for row in found] == [str(row) for row in range(60_000)]


@pytest.mark.parametrize("schema", ["id STRING, n STRING", None])
def test_file_that_is_split_before_its_header_is_rejected(spark, write, schema):
    file = write("bad.csv", b"\n" * 40 + b"id,n\na,1\nb,2\n")
    small = {"spark.sql.files.maxPartitionBytes": "16", "spark.sql.files.openCostInBytes": "0"}
    with settings(spark, small):
        message = message_of(lambda: csv_rows(spark, [file], schema, {"multiLine": "false"}).collect())
    assert "/bad.csv" in message
    assert "multiLine=true" in message


def test_settings_split_no_file_and_use_all_cores(write):
    files = [write(f"{size}.csv", b"x" * size) for size in (10, 5_000_000)]
    assert int(whole_file_settings(files, 2)["spark.sql.files.maxPartitionBytes"]) >= 5_000_000
    many = [write("m.csv", b"x" * 1_000_000)] * 1000
    assert int(whole_file_settings(many, 4)["spark.sql.files.maxPartitionBytes"]) == 128 << 20


def test_bad_column_is_rejected_if_no_expression_uses_it(spark, write):
    file = write("bad.csv", b"a,b\n1,2\n3,4,5\n")
    message_of(lambda: csv_rows(spark, [file], None, {"multiLine": "false"}).select("b").collect())


def test_files_with_different_headers_are_rejected(rows, write):
    files = [write("a.csv", b"id,n\n1,2\n"), write("b.csv", b"n,id\n1,2\n")]
    assert "/b.csv, line 1" in message_of(lambda: rows(files))
    assert rows(files, enforceSchema="true") == [("1", "2"), ("1", "2")]
    assert rows([files[0], write("empty.csv", b"")]) == [("1", "2")]


def test_typed_values(rows, write):
    data = (
        b"a,b,c,d,e,f,g,h,i,j\n"
        b"007,-5,1.10,0.1,TRUE,2024-02-29,2024-07-01T12:00:00.123456Z,2024-07-01 12:00:00.5,x,16777216\n"
        b"+8,,,,,,2024-07-01,,,\n"
    )
    schema = (
        "a INT NOT NULL, b TINYINT, c DECIMAL(10,1), d DOUBLE, e BOOLEAN, f DATE, g TIMESTAMP, h TIMESTAMP_NTZ, "
        "i BINARY, j FLOAT"
    )
    [first, second] = rows([write("a.csv", data)], schema)
    assert first[:6] == (7, -5, Decimal("1.1"), 0.1, True, dt.date(2024, 2, 29))
    assert first[6].timestamp() == dt.datetime(2024, 7, 1, 12, 0, 0, 123456, dt.UTC).timestamp()
    assert first[7:] == (dt.datetime(2024, 7, 1, 12, 0, 0, 500000), bytearray(b"x"), 16777216.0)  # noqa: DTZ001
    assert second[:6] == (8, None, None, None, None, None)
    assert second[6].timestamp() == dt.datetime(2024, 7, 1, tzinfo=dt.UTC).timestamp()


def test_locale_reads_its_numbers(rows, write):
    data = b"id;x;y;n\n1;1.234,50;3,5;1.000\n2;-7;0;5\n"
    schema = "id STRING, x DECIMAL(10,2), y DOUBLE, n INT"
    options = {"sep": ";", "locale": "de-DE"}
    assert rows([write("a.csv", data)], schema, **options) == [
        ("1", Decimal("1234.50"), 3.5, 1000),
        ("2", Decimal("-7.00"), 0.0, 5),
    ]


def test_patterns_of_times(rows, write, rejected):
    schema = "id STRING, d DATE, t TIMESTAMP, u TIMESTAMP_NTZ"
    options = {
        "dateFormat": "dd.MM.yyyy",
        "timestampFormat": "dd MMMM yyyy HH:mm",
        "timestampNTZFormat": "yyyyMMddHHmmss",
        "locale": "de-DE",
        "timeZone": "Europe/Berlin",
    }
    data = "id,d,t,u\n1,29.02.2024,01 März 2024 12:00,20240301120001\n2,,,\n".encode()
    [first, second] = rows([write("a.csv", data)], schema, **options)
    assert first[1] == dt.date(2024, 2, 29)
    assert first[2].timestamp() == dt.datetime(2024, 3, 1, 11, tzinfo=dt.UTC).timestamp()
    assert first[3] == dt.datetime(2024, 3, 1, 12, 0, 1)  # noqa: DTZ001
    assert second == ("2", None, None, None)
    message = rejected(b"id,d,t,u\n1,,,\n2,29.02.2023,,\n", schema, **options)
    assert "line 3" in message


def test_time_is_checked_if_no_expression_uses_it(spark, write):
    file = write("bad.csv", b"id,d\n1,31.02.2023\n")
    frame = csv_rows(spark, [file], "id STRING, d DATE", {"dateFormat": "dd.MM.yyyy"})
    message_of(lambda: frame.select("id", POSITION).collect())


def test_file_without_header_has_numbered_columns(rows, spark, write):
    files = [write("a.csv", b"1,2\n3,4\n")]
    assert rows(files, header="false") == [("1", "2"), ("3", "4")]
    assert csv_rows(spark, files, None, {"header": "false"}).columns[:2] == ["_c0", "_c1"]


def test_name_of_a_position_column_is_rejected(rows, write):
    with pytest.raises(UsageError):
        rows([write("a.csv", f"id,{POSITION}\n1,2\n".encode())])


def test_more_columns_than_spark_reads(rows, write):
    names = ",".join(f"c{number}" for number in range(21_000))
    [row] = rows([write("a.csv", f"{names}\n{names}\n".encode())])
    assert row == tuple(names.split(","))


def test_names_of_files_are_taken_literally(rows, write):
    names = ["e[1].csv", "b%20c.csv", "a b+ü.csv", "e{1}.csv", "s*r?.csv", "b\\s.csv", "h#.csv", "region=007/a.csv"]
    write("e1.csv", b"id\nother\n")
    files = [write(name, b"id\n%d\n" % number) for number, name in enumerate(names)]
    assert rows(files) == [(str(number),) for number in range(len(names))]


def test_compressed_files_are_read(rows, write):
    data = b'id\n1\n"2\n3"\n'
    files = [write("a.csv.gz", gzip.compress(data)), write("a.csv.bz2", bz2.compress(data))]
    assert rows(files) == 2 * [("1",), ("2\n3",)]


@pytest.mark.parametrize("data", [b"", b"\n\n", b"id,id\n1,2\n", b"PAR1\x15\x04\x15\x00\n", b'id,"n\n1,2\n'])
def test_file_without_a_usable_header_is_rejected(rejected, data):
    rejected(data)


def test_bad_value_is_rejected_with_its_place(rejected):
    data = b'id,x\n"1\n",1.5\n2,1.2345\n'
    assert "line 4: column 'x': '1.2345'" in rejected(data, "id STRING, x DECIMAL(3,2)")
    assert "line 1" in rejected(data, "id STRING, X DECIMAL(3,2)")


@pytest.mark.parametrize("schema", ["INT", "id VARCHAR(3)"])
def test_schema_that_text_does_not_have_is_rejected(spark, schema):
    with pytest.raises(UsageError):
        csv_rows(spark, [], schema, {})


def test_names_of_columns_are_kept(spark, rows, write):
    files = [write("a.csv", b'a.b,"c\nd",`e`,,ID,id\n1,2,3,4,5,6\n')]
    assert csv_rows(spark, files, None, {}).columns[:6] == ["a.b", "c\nd", "`e`", "_c3", "ID", "id"]
    assert len(rows(files)) == 1
