"""`--bad-rows` with the address of a log: the records of the bad rows, reruns, and addresses that are rejected."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_cas import open_log
from spark_cas.programs import bad_rows
from tests.programs.loading import all_records

pytestmark = pytest.mark.spark

JOB = "load-1"
OPTIONS = ("--partitions", "2", "--job", JOB)


@pytest.fixture
def letters(tmp_path):
    """The path of a log with one partition."""
    path = str(tmp_path / "bad")
    with open_log(path) as log:
        log.create(1)
    return path


@pytest.fixture
def csv(tmp_path):
    """Arguments that load two files with three bad rows and many good ones."""
    (tmp_path / "in").mkdir()
    good = [f"{row},v" for row in range(50)]
    (tmp_path / "in" / "a.csv").write_text("\n".join(["id,name", "x,naïve", *good, '7,"a', 'b",1']))
    (tmp_path / "in" / "b.csv").write_text("\n".join(["id,name", *good, ",absent"]))
    schema = ("--schema", "id INT NOT NULL, name STRING")
    return ("--input", str(tmp_path / "in"), "--format", "csv", *schema, "--value-json", *OPTIONS)


def records_of(path):
    return [record for records in all_records(path) for _, record in records]


def headers_of(record):
    return {each["key"]: each["value"].decode() for each in record["headers"]}


def test_each_bad_row_is_one_record(load, csv, letters, tmp_path):
    code, report, told = load(*csv, "--bad-rows", letters)
    assert (code, report["rows"], report["bad_rows"]) == (0, 100, 3)
    assert f"warning: bad rows in {letters}: 3" in told
    records = records_of(letters)
    assert [each["value"].decode() for each in records] == ["x,naïve", '7,"a\nb",1', ",absent"]
    assert {each["key"] for each in records} == {None}
    first, second, third = map(headers_of, records)
    problem = first.pop("spark_cas.problem")
    assert "'id'" in problem
    assert "'x'" in problem
    place = {"spark_cas.file": f"file:{tmp_path}/in/a.csv", "spark_cas.line": "2"}
    assert first == {**place, "spark_cas.code": "MALFORMED", "spark_cas.job": JOB}
    assert (second["spark_cas.line"], third["spark_cas.line"]) == ("53", "52")
    assert third["spark_cas.file"] == f"file:{tmp_path}/in/b.csv"


def test_rerun_appends_no_bad_row_again(load, csv, letters):
    conflict = ("--expected-offsets", '{"0": 17}')
    code, report, _ = load(*csv, "--bad-rows", letters, *conflict)
    assert (code, report["error"], report["rows"]) == (3, "TRUNCATED", 0)
    before = records_of(letters)
    assert len(before) == 3
    for argument, verified in ((), False), ((), False), (("--verify",), True):
        code, report, _ = load(*csv, "--bad-rows", letters, *argument)
        assert (code, report["rows"], report["bad_rows"], report["verified"]) == (0, 100, 3, verified)
        assert records_of(letters) == before
    assert len(records_of(load.log)) == 100


def test_comparison_appends_no_bad_row(load, csv, letters, tmp_path):
    assert load(*csv, "--bad-rows", str(tmp_path / "bad.jsonl"))[0] == 0
    code, report, _ = load(*csv, "--bad-rows", letters, "--verify")
    assert (code, report["rows"], report["bad_rows"], report["verified"]) == (0, 100, 3, True)
    assert records_of(letters) == []


def test_bad_rows_that_changed_before_the_load_began_are_rejected(load, csv, letters, tmp_path):
    assert load(*csv, "--bad-rows", letters, "--expected-offsets", '{"0": 17}')[0] == 3
    file = tmp_path / "in" / "b.csv"
    file.write_text(file.read_text().replace(",absent", "51,present"))
    code, report, _ = load(*csv, "--bad-rows", letters)
    assert (code, report["error"], report["rows"]) == (4, "INPUT_CHANGED", 0)
    assert f"spark-cas forget --force {JOB}.bad-rows" in report["message"]


def test_two_loads_share_a_log(load, csv, letters):
    assert load(*csv, "--bad-rows", letters)[0] == 0
    code, report, _ = load(*csv, "--job", "load-2", "--bad-rows", letters)
    assert (code, report["bad_rows"]) == (0, 3)
    jobs = [headers_of(each)["spark_cas.job"] for each in records_of(letters)]
    assert jobs == [JOB] * 3 + ["load-2"] * 3


def test_rows_of_parquet_have_a_number(load, tmp_path, letters):
    pq.write_table(pa.table({"v": ["a", None, "c"]}), tmp_path / "a.parquet")
    command = ("--input", str(tmp_path / "a.parquet"), "--value", "v", *OPTIONS)
    code, report, _ = load(*command, "--bad-rows", letters)
    assert (code, report["rows"], report["bad_rows"]) == (0, 2, 1)
    (record,) = records_of(letters)
    place = {"spark_cas.file": f"file:{tmp_path}/a.parquet", "spark_cas.row": "2"}
    assert headers_of(record) == {**place, "spark_cas.code": "NULL_VALUE", "spark_cas.job": JOB}
    assert json.loads(record["value"]) == {"v": None}


def test_load_without_bad_rows(load, tmp_path, letters):
    (tmp_path / "a.json").write_text('{"id": 1}')
    command = ("--input", str(tmp_path / "a.json"), "--value-json", *OPTIONS, "--bad-rows", letters)
    for _ in range(2):
        code, report, told = load(*command)
        assert (code, report["rows"], report["bad_rows"]) == (0, 1, 0)
        assert "warning" not in told
    assert records_of(letters) == []


def test_only_bad_rows_are_no_input(load, tmp_path, letters):
    """The next run may have another schema, so the first one appends nothing."""
    (tmp_path / "a.json").write_text("1\n2\n")
    command = ("--input", str(tmp_path / "a.json"), "--value-json", *OPTIONS, "--bad-rows", letters)
    code, report, _ = load(*command)
    assert (code, report["error"], records_of(letters)) == (2, "UsageError", [])
    code, report, _ = load(*command, "--allow-empty")
    assert (code, report["rows"], report["bad_rows"], len(records_of(letters))) == (0, 0, 2, 2)


def test_record_that_is_too_large_fails_the_load(load, tmp_path, letters):
    conf = tmp_path / "conf.toml"
    conf.write_text('[logs."bad"]\nmaxBytesPerChunk = 200\n')
    (tmp_path / "a.json").write_text('{"id": 1}\n' + "x" * 300)
    command = ("--input", str(tmp_path / "a.json"), "--value-json", *OPTIONS, "--bad-rows", letters)
    code, report, _ = load(*command, "--log-option", f"conf={conf}")
    assert (code, report["error"], report["rows"], report["appended_rows"]) == (2, "RECORD_TOO_LARGE", 0, 0)
    assert letters in report["message"]
    code, report, _ = load(*command)
    assert (code, report["rows"], report["bad_rows"], len(records_of(letters))) == (0, 1, 1, 1)


@pytest.mark.parametrize(
    "address", ["file:{folder}/absent", "{folder}", "memory:///bad", "ftp://host/bad", "kafka://h/t"]
)
def test_address_without_a_log_is_rejected_before_the_input_is_read(load, csv, tmp_path, address):
    (tmp_path / "folder").mkdir()
    code, report, _ = load(*csv, "--bad-rows", address.format(folder=tmp_path / "folder"))
    assert (code, load.sessions, report["rows"]) == (2, 0, 0)
    assert "--bad-rows" in report["message"]


def test_log_of_the_load_is_rejected(load, csv, tmp_path):
    with open_log(load.log) as log:
        log.create(2)
    (tmp_path / "link").symlink_to(load.log)
    for address in (load.log, str(tmp_path / "link")):
        code, report, _ = load(*csv, "--bad-rows", address)
        assert (code, report["error"], load.sessions) == (2, "UsageError", 0)
    assert records_of(load.log) == []


def test_job_name_that_is_too_long_is_rejected(load, csv, letters):
    code, report, _ = load(*csv, "--job", "j" * 195, "--bad-rows", letters)
    assert (code, report["error"], load.sessions) == (2, "OPTION", 0)


def test_file_with_too_many_rows_is_rejected(load, csv, tmp_path, monkeypatch):
    monkeypatch.setattr(bad_rows, "MOST_ROWS_IN_FILE", 2)
    bad = tmp_path / "bad.jsonl"
    code, report, _ = load(*csv, "--bad-rows", str(bad))
    assert (code, report["error"], report["rows"]) == (2, "UsageError", 0)
    assert [json.loads(line)["line"] for line in bad.read_text().splitlines()] == [2, 53]
    monkeypatch.setattr(bad_rows, "MOST_ROWS_IN_FILE", 3)
    code, report, _ = load(*csv, "--bad-rows", str(bad))
    assert (code, report["rows"], report["bad_rows"]) == (0, 100, 3)
