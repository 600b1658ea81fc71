"""Readers of text formats in a session of Spark Connect."""

import bz2

import pytest

from spark_cas.core.errors import UnreadableInputError
from spark_cas.core.input_list import InputFile
from spark_cas.programs.input.csv_rows import csv_rows
from spark_cas.programs.input.json_rows import DOCUMENT, json_path_column, json_rows
from spark_cas.programs.input.text_files import text_rows
from spark_cas.programs.input.whole_files import require_complete
from tests.programs.input.reading import message_of, write_file

pytestmark = pytest.mark.spark


@pytest.fixture
def write(spark, tmp_path):
    return lambda name, data: write_file(tmp_path / name, data)


def test_csv(connect, write):
    file = write("a[1].csv", b"id,n\n1,2\n")
    frame = csv_rows(connect, [file], "id STRING, n INT NOT NULL", {})
    assert [tuple(row)[:2] for row in frame.collect()] == [("1", 2)]
    message_of(lambda: csv_rows(connect, [write("b.csv", b"id\n1,2\n")], None, {}).collect())


def test_json(connect, write):
    file = write("a.jsonl", b'{"z":1.10,"y":1e400}\n')
    frame = json_rows(connect, [file], None, {}, paths=["$.y"]).select("z", json_path_column("$.y"), DOCUMENT)
    (row,) = frame.collect()
    assert (*row[:2], bytes(row[2])) == ("1.10", "1e400", b'{"z":1.10,"y":1e400}')


def test_pattern_of_a_nested_time(connect, write):
    file = write("a.jsonl", b'{"s":{"t":["29.02.2024 12:00",null]}}\n')
    options = {"timestampFormat": "dd.MM.yyyy HH:mm", "timeZone": "Europe/Berlin"}
    frame = json_rows(connect, [file], "s STRUCT<t: ARRAY<TIMESTAMP>>", options)
    assert frame.selectExpr("unix_seconds(s.t[0])", "s.t[1]").collect() == [(1709204400, None)]


def test_text(connect, write):
    assert [row.value for row in text_rows(connect, [write("a.txt", b"x\r\n")], {}).collect()] == ["x\r"]


def test_check_of_compressed_files(connect, tmp_path):
    data = bz2.compress(b"1\n")
    (tmp_path / "a b.txt.bz2").write_bytes(data)
    (tmp_path / "c.txt.bz2").write_bytes(data + data[:-1])
    files = [InputFile(f"file:{each}", each.stat().st_size, 0) for each in sorted(tmp_path.iterdir())]
    require_complete(connect, files[:1])
    with pytest.raises(UnreadableInputError, match=r"/c\.txt\.bz2: the file is cut or damaged: "):
        require_complete(connect, files)
