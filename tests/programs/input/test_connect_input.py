"""Readers of text formats in a session of Spark Connect."""

import bz2
import json

import pytest

from spark_cas import open_log
from spark_cas.core.errors import SparkSetupError, UnreadableInputError
from spark_cas.core.input_list import InputFile
from spark_cas.options.parse import parse_load
from spark_cas.programs.arguments import LoadRequest
from spark_cas.programs.bad_rows import RowLimits, dead_letters_of, write_bad_rows
from spark_cas.programs.input.columns import quoted
from spark_cas.programs.input.csv_rows import csv_rows
from spark_cas.programs.input.json_rows import DOCUMENT, json_rows
from spark_cas.programs.input.recorded_list import ListedInput
from spark_cas.programs.input.spark_files import require_complete, text_rows
from spark_cas.programs.load_input import append_bad_rows, input_settings, ordered_rows, pinned_settings
from spark_cas.spark import versions
from tests.programs.input.reading import message_of, write_file
from tests.support.writing import values_in

pytestmark = pytest.mark.spark
needs_json = pytest.mark.skipif(not versions._HAS_JSON_OF_ROWS, reason="Spark Connect reads no JSON texts before 4.2")


@pytest.fixture
def write(spark, tmp_path):
    return lambda name, data: write_file(tmp_path / name, data)


def test_json_before_version_4_2_is_rejected(connect, write, monkeypatch):
    monkeypatch.setattr(versions, "_HAS_JSON_OF_ROWS", False)
    with pytest.raises(SparkSetupError, match=r"pyspark 4\."):
        json_rows(connect, [write("a.jsonl", b"{}\n")], None, {})


def test_csv(connect, write):
    file = write("a[1].csv", b"id,n\n1,2\n")
    frame = csv_rows(connect, [file], "id STRING, n INT NOT NULL", {})
    assert [tuple(row)[:2] for row in frame.collect()] == [("1", 2)]
    message_of(lambda: csv_rows(connect, [write("b.csv", b"id\n1,2\n")], None, {}).collect())


@needs_json
def test_json(connect, write):
    file = write("a.jsonl", b'{"z":1.10,"y":1e400}\n')
    frame = json_rows(connect, [file], None, {}, paths=["$.y"]).select("z", quoted("$.y"), DOCUMENT)
    (row,) = frame.collect()
    assert (*row[:2], bytes(row[2])) == ("1.10", "1e400", b'{"z":1.10,"y":1e400}')


@needs_json
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


def test_bad_rows(connect, write, tmp_path):
    file = write("a.csv", b"k,n\na,1\nb,x\n,3\n")
    files = [InputFile(file.path, file.size, 0)]
    request = LoadRequest((), "csv", "log", "k", None, schema="k STRING, n INT", bad_rows="bad.jsonl")
    source = ListedInput(tuple(files), request.listed(files), ())
    with open_log(str(tmp_path / "bad")) as log:
        log.create(1)
    letters = dead_letters_of(str(tmp_path / "bad"), parse_load({"path": str(tmp_path / "log")}), "load-1")
    assert letters is not None
    with pinned_settings(connect, input_settings(connect, request, files)):
        rows, _, bad = ordered_rows(connect, request, files, RowLimits(1000, keys_required=True))
        assert bad is not None
        assert write_bad_rows(bad, files, str(tmp_path / "bad.jsonl")) == 2
        assert append_bad_rows(bad, source, letters, "load-1") == 2
        assert [row.value for row in rows.collect()] == ['{"k":"a","n":1}']
    codes = [json.loads(line)["code"] for line in (tmp_path / "bad.jsonl").read_text().splitlines()]
    assert codes == ["NULL_KEY", "MALFORMED"]
    with open_log(str(tmp_path / "bad")) as log:
        assert values_in(log, 0) == ['{"k":null,"n":3}', "b,x"]
