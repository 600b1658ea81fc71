"""`--bad-rows`: the rows that a load separates, the file that lists them, and the rows that it appends."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from tests.pages import blocks
from tests.programs.input.avro_bytes import container, record
from tests.programs.loading import all_records

pytestmark = pytest.mark.spark

OPTIONS = ("--partitions", "2", "--job", "load-1")


@pytest.fixture
def bad(tmp_path):
    return tmp_path / "bad.jsonl"


def listed(bad):
    return [json.loads(line) for line in bad.read_text().splitlines()]


def values(log_path):
    return sorted(row["value"] for records in all_records(log_path) for _, row in records)


def test_csv(load, tmp_path, bad):
    file = tmp_path / "a.csv"
    good = [f"{row},v{row}" for row in range(500)]
    rows = [*good[:100], "x,none", *good[100:200], '7,"a', 'b",1', "8", *good[200:], ",absent"]
    file.write_text("\n".join(["id,name", *rows]))
    command = ("--input", str(file), "--schema", "id INT NOT NULL, name STRING", "--key", "name", "--value-json")
    code, report, _ = load(*command, *OPTIONS)
    assert (code, report["error"], report["bad_rows"]) == (2, "INPUT_UNREADABLE", None)
    code, report, told = load(*command, *OPTIONS, "--bad-rows", str(bad))
    assert (code, report["rows"], report["bad_rows"]) == (0, 500, 4)
    assert f"warning: bad rows in {bad}: 4" in told
    lines = {each["line"]: each["text"] for each in listed(bad)}
    assert lines == {102: "x,none", 203: '7,"a\nb",1', 205: "8", 506: ",absent"}
    assert {each["code"] for each in listed(bad)} == {"MALFORMED"}
    assert {each["file"] for each in listed(bad)} == {f"file:{file}"}
    [example] = [each.text for each in blocks("docs/loading.md") if each.language == "json"]
    assert listed(bad)[0] == json.loads(example.replace("/data/a.csv", str(file)))
    assert [json.loads(each)["id"] for each in values(load.log)] == [int(each.split(",")[0]) for each in sorted(good)]
    before = bad.read_text()
    code, report, _ = load(*command, *OPTIONS, "--bad-rows", str(bad), "--verify")
    assert (code, report["verified"], report["bad_rows"]) == (0, True, 4)
    assert bad.read_text() == before


OWN_NAMES = {
    "_input_bad.parquet": lambda file: pq.write_table(pa.table({"id": [1], "_input_bad": ["{}"]}), file),
    "_Input_bad.orc": lambda file: orc.write_table(pa.table({"id": [1], "_Input_bad": ["{}"]}), str(file)),
    "_input_bad.csv": lambda file: file.write_text("id,_input_bad\n1,{}\n"),
    "_input_corrupt.json": lambda file: file.write_text('{"id": 1, "_input_corrupt": "{}"}\n'),
    "_input_position.avro": lambda file: file.write_bytes(container(record(_input_position="long"), b"\2")),
    "_input_file=1/a.text": lambda file: file.write_text("a\n"),
}
"""Input with a column that begins as those of a load, by its name and suffix."""


@pytest.mark.parametrize("name", OWN_NAMES)
def test_column_with_a_name_of_the_load_is_rejected(load, tmp_path, bad, name):
    column, _, suffix = name.partition(".")
    file = tmp_path / "in" / (name if "/" in name else f"a.{suffix}")
    file.parent.mkdir(parents=True)
    OWN_NAMES[name](file)
    command = ("--input", str(tmp_path / "in"), "--format", suffix, "--value", "id", "--bad-rows", str(bad))
    code, report, told = load(*command, *OPTIONS)
    assert (code, report["rows"]) == (2, 0), told
    assert f"column {column.partition('=')[0]} begins with" in told


@pytest.mark.parametrize("schema", [(), ("--schema", "id INT, name STRING")], ids=["inferred", "schema"])
def test_json(load, tmp_path, bad, schema):
    file = tmp_path / "a.json"
    wrong = ['{"id": 1', "[2]", '{"id": 1} {"id": 2}']
    if schema:
        wrong.append('{"id": "three"}')
    good = [json.dumps({"id": row, "name": f"n{row}"}) for row in range(100)]
    file.write_text("\n".join([good[0], wrong[0], *good[1:50], *wrong[1:], *good[50:]]))
    command = ("--input", str(file), *schema, "--key", "name", "--value-json", *OPTIONS)
    assert load(*command)[0] == 2
    code, report, _ = load(*command, "--bad-rows", str(bad))
    assert (code, report["rows"], report["bad_rows"]) == (0, 100, len(wrong))
    assert [each["text"] for each in listed(bad)] == wrong
    assert listed(bad)[0]["line"] == 2
    assert values(load.log) == sorted(each.encode() for each in good)


def test_parts_of_a_json_document_file(load, tmp_path, bad):
    file = tmp_path / "a.json"
    file.write_text('[{"id": 1},\n2,\n{"id": 3}]')
    command = ("--input", str(file), "--read-option", "multiLine=true", "--value-json", *OPTIONS)
    code, report, _ = load(*command, "--bad-rows", str(bad))
    assert (code, report["rows"], [each["line"] for each in listed(bad)]) == (0, 2, [2])


def test_records_that_the_log_does_not_accept(load, tmp_path, bad):
    """A record of exactly the limit is appended: 32 bytes, the key, the value, and the header."""
    most = 1000
    table = pa.table(
        {
            "k": ["k"] * 6,
            "v": ["fits", None, "x" * (most - 32 - 1 - 6), "x" * (most - 32 - 1 - 5), "late", "none"],
            "t": pa.array([0, 1000, 0, 0, 1, None], pa.timestamp("us", "UTC")),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    columns = ("--key", "k", "--value", "v", "--timestamp", "t", "--header", "name='hh'")
    command = ("--input", str(tmp_path / "a.parquet"), *columns, *OPTIONS, "--max-bytes-per-chunk", str(most))
    assert load(*command)[0] == 2
    code, report, _ = load(*command, "--bad-rows", str(bad))
    assert (code, report["rows"], report["bad_rows"], report["input"]["rows"]) == (0, 2, 4, 6)
    codes = [(each["row"], each["code"]) for each in listed(bad)]
    assert codes == [(2, "NULL_VALUE"), (4, "TOO_LARGE"), (5, "BAD_TIMESTAMP"), (6, "BAD_TIMESTAMP")]
    assert json.loads(listed(bad)[0]["text"]) == {"k": "k", "v": None, "t": "1970-01-01T00:00:00.001000Z"}
    assert [len(each) for each in values(load.log)] == [4, most - 32 - 1 - 6]


def test_dates_with_a_pattern(load, tmp_path, bad):
    """Spark parses these after the task that rejects the number."""
    (tmp_path / "a.csv").write_text("id,day\n1,31.07.2024\nx,01.08.2024\n3,02.08.2024\n")
    schema = ("--schema", "id INT, day DATE", "--read-option", "dateFormat=dd.MM.yyyy", "--value-json")
    code, report, _ = load("--input", str(tmp_path / "a.csv"), *schema, *OPTIONS, "--bad-rows", str(bad))
    assert (code, report["rows"], [each["line"] for each in listed(bad)]) == (0, 2, [3])
    assert [json.loads(each)["day"] for each in values(load.log)] == ["2024-07-31", "2024-08-02"]


def test_tombstones(load, tmp_path, bad):
    (tmp_path / "a.csv").write_text("k,v\nk,0\nk,1\nk,2\nk,\nk,4\n")
    command = ("--input", str(tmp_path / "a.csv"), "--key", "k", "--value", "v", *OPTIONS, "--bad-rows", str(bad))
    code, report, _ = load(*command, "--tombstones")
    assert (code, report["rows"], report["bad_rows"], bad.read_text()) == (0, 5, 0, "")
    code, report, _ = load(*command[:-4], "--job", "load-2", "--bad-rows", str(bad))
    assert (code, report["rows"], report["bad_rows"]) == (0, 4, 1)
    (row,) = listed(bad)
    assert (row["code"], row["text"]) == ("NULL_VALUE", '{"k":"k","v":null}')


def test_query_is_rejected(load, bad):
    """A query runs once to find bad rows and once to append, and its rows may change in between."""
    with pytest.raises(SystemExit) as exit_code:
        load("--query", "SELECT 'v' AS v", "--value", "v", *OPTIONS, "--bad-rows", str(bad))
    assert exit_code.value.code == 2


def test_report_does_not_replace_the_bad_rows(load, tmp_path, bad):
    command = ("--input", "a.json", "--value-json", *OPTIONS, "--bad-rows", str(bad))
    with pytest.raises(SystemExit) as exit_code:
        load(*command, "--report", str(tmp_path / "." / bad.name))
    assert exit_code.value.code == 2


def test_only_bad_rows_are_no_input(load, tmp_path, bad):
    (tmp_path / "a.json").write_text("1\n2\n")
    command = ("--input", str(tmp_path / "a.json"), "--value-json", *OPTIONS, "--bad-rows", str(bad))
    code, report, _ = load(*command)
    assert (code, report["error"], len(listed(bad))) == (2, "UsageError", 2)
    code, report, _ = load(*command, "--allow-empty")
    assert (code, report["rows"], report["bad_rows"]) == (0, 0, 2)


def test_file_that_cannot_be_written_is_a_usage_error(load, tmp_path):
    with pytest.raises(SystemExit) as exit_code:
        load("--input", "a.json", "--value-json", *OPTIONS, "--bad-rows", str(tmp_path / "absent" / "bad.jsonl"))
    assert exit_code.value.code == 2


def test_load_that_stopped_resumes_with_bad_rows(load, tmp_path, bad):
    """A run without the option appends rows before a record that is too large, and the next run resumes."""
    file = tmp_path / "a.json"
    rows = [json.dumps({"id": row, "text": "x" * (200_000 if row == 25_000 else 1)}) for row in range(30_000)]
    file.write_text("\n".join(rows))
    limits = ("--max-bytes-per-chunk", "100000")
    to_log = ("--value-json", "--partitions", "1", "--job", "load-1", "--order-by", "int(id)")
    command = ("--input", str(file), *to_log, *limits)
    code, report, _ = load(*command)
    assert (code, report["error"]) == (2, "RECORD_TOO_LARGE")
    assert 0 < report["rows"] <= 25_000
    code, report, _ = load(*command, "--bad-rows", str(bad))
    assert (code, report["rows"], report["bad_rows"]) == (0, 29_999, 1)
    (records,) = all_records(load.log)
    assert [json.loads(row["value"])["id"] for _, row in records] == [row for row in range(30_000) if row != 25_000]
