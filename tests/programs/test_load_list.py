"""The input list of a load: recorded with the job, compared by every later run, and never empty by accident."""

import json
import os

import pytest

from spark_cas import open_log
from spark_cas.core.plan import input_entry
from spark_cas.programs.bulk_load import LoadRun
from tests.long import full
from tests.programs.loading import all_records

pytestmark = pytest.mark.spark

ROWS = ("--format", "csv", "--key", "id", "--value", "n", "--partitions", "1", "--job", "load-1")


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("id,n\n1,one\n")
    (folder / "b.csv").write_text("id,n\n2,two\n")
    return folder


def test_same_job_with_another_file_is_rejected_by_the_name_of_the_file(load, folder):
    assert load("--input", str(folder), *ROWS)[0] == 0
    (folder / "c.csv").write_text("id,n\n3,three\n")
    for verify in ((), ("--verify",)):
        code, report, said = load("--input", str(folder), *ROWS, *verify)
        assert (code, report["error"], report["rows"]) == (4, "INPUT_CHANGED", 2)
        assert f"file:{folder}/c.csv" in said
    (folder / "c.csv").unlink()
    os.utime(folder / "b.csv", ns=(0, 0))
    code, report, said = load("--input", str(folder), *ROWS)
    assert (code, report["error"]) == (4, "INPUT_CHANGED")
    assert f"file:{folder}/b.csv" in said
    assert len(all_records(load.log)[0]) == 2


def rewrite(folder):
    (folder / "b.csv").write_text("id,n\n2,new\n")


def remove_one(folder):
    (folder / "b.csv").unlink()


def remove_all(folder):
    (folder / "a.csv").unlink()
    (folder / "b.csv").unlink()


def add_one(folder):
    (folder / "c.csv").write_text("id,n\n2,new\n")


@pytest.mark.parametrize(
    ("change", "expected"), [(rewrite, 4), (add_one, 0), *((each, 4) for each in (remove_one, remove_all))]
)
def test_file_that_changes_after_it_was_read_fails_the_load(load, folder, monkeypatch, change, expected):
    append = LoadRun._append

    def changing(run, *arguments, **named):
        result = append(run, *arguments, **named)
        change(folder)
        return result

    monkeypatch.setattr(LoadRun, "_append", changing)
    code, report, said = load("--input", str(folder), *ROWS)
    assert (code, report["error"]) == (expected, "INPUT_CHANGED" if expected else None)
    assert ("verify_log.py" in said) == (expected == 4)
    assert len(all_records(load.log)[0]) == 2


def test_same_job_with_another_argument_is_rejected_by_its_name(load, folder):
    assert load("--input", str(folder), *ROWS)[0] == 0
    code, report, said = load("--input", str(folder), *ROWS, "--key", "n")
    assert (code, report["error"]) == (4, "INPUT_CHANGED")
    assert "--key" in said


def test_same_files_without_the_column_of_their_folder_are_rejected(load, folder):
    above = folder.parent / "above"
    above.mkdir()
    folder.rename(above / "region=7")
    rows = (*ROWS[:4], "--value-json", *ROWS[6:])
    assert load("--input", str(above / "region=7"), *rows)[0] == 0
    code, report, said = load("--input", str(above), *rows)
    assert (code, report["error"]) == (4, "INPUT_CHANGED")
    assert "--input" in said
    assert load("--input", str(above / "region=7"), *rows)[1]["error"] is None


def test_interrupted_job_compares_the_list_before_it_resumes(load, folder):
    conflict = ("--expected-offsets", '{"0": 5}')
    assert load("--input", str(folder), *ROWS)[0] == 0
    other = (*ROWS[:-1], "load-2")
    assert load("--input", str(folder), *other, *conflict)[0] == 3, "rejected before it was planned"
    (folder / "c.csv").write_text("id,n\n3,three\n")
    code, report, _ = load("--input", str(folder), *other)
    assert (code, report["appended_rows"]) == (0, 3), "a run that appended nothing binds no later run"
    with open_log(load.log) as log:
        plan = log.plan("load-2")
        assert plan is not None
        assert json.loads(log.entry("input", input_entry("load-2", plan.input)) or "")["count"] == 3


def test_forgotten_job_leaves_no_input_list(load, folder):
    assert load("--input", str(folder), *ROWS)[0] == 0
    with open_log(load.log) as log:
        plan = log.plan("load-1")
        assert plan is not None
        name = input_entry("load-1", plan.input)
        assert log.entry("input", name) is not None
        log.forget(plan)
        assert log.entry("input", name) is None


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (None, ""),
        ("id,n\n", ""),
        ("#a\nid,n\n#b\n\n", "comment=#"),
        pytest.param("\ufeffid,n\n\n\n", "", marks=pytest.mark.full),
        pytest.param('"id",n\n', "", marks=pytest.mark.full),
        pytest.param("\n\n", "header=false", marks=pytest.mark.full),
    ],
)
def test_input_without_rows_is_rejected_and_leaves_the_name_of_the_job_free(load, tmp_path, content, options):
    folder = tmp_path / "in"
    folder.mkdir()
    if content is not None:
        (folder / "a.csv").write_text(content)
    schema = ("--schema", "id STRING, n STRING")
    read = [word for option in options.split() for word in ("--read-option", option)]
    code, report, _ = load("--input", str(folder), *ROWS, *schema, *read)
    assert (code, report["rows"]) == (2, 0)
    (folder / "a.csv").write_text("id,n\n1,one\n")
    assert load("--input", str(folder), *ROWS, *schema)[:2][0] == 0


@pytest.mark.parametrize(
    ("header", "options"),
    [('id,n,"a\nb"\n', ()), ('id,n,"a\\"\nb"\n', ("--read-option", "escape=\\"))],
    ids=["quoted", "escaped"],
)
def test_header_of_several_lines_is_no_row(load, tmp_path, header, options):
    file = tmp_path / "a.csv"
    file.write_text(header)
    code, report, _ = load("--input", str(file), *ROWS, *options)
    assert (code, report["rows"]) == (2, 0)
    file.write_text(header + "1,one,x\n")
    assert load("--input", str(file), *ROWS, *options)[0] == 0


@pytest.mark.parametrize(
    ("content", "options"), [("", ()), ("\n \n", ()), ("[]", ("--read-option", "multiLine=true"))]
)
def test_json_without_documents_is_rejected(load, tmp_path, content, options):
    file = tmp_path / "a.json"
    file.write_text(content)
    code, report, _ = load("--input", str(file), "--value-json", "--job", "load-1", "--partitions", "1", *options)
    assert (code, report["rows"]) == (2, 0)


def test_input_without_rows_completes_the_job_if_it_is_allowed(load, tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("id,n\n")
    code, report, _ = load("--input", str(file), *ROWS, "--allow-empty")
    assert (code, report["status"], report["rows"]) == (0, "complete", 0)


@pytest.mark.parametrize(("data", "options"), [("id\n\r#c\n", ()), ("\r#c\n#d\r\n", ("--schema", "id STRING"))])
def test_file_with_comments_alone_has_no_rows(load, tmp_path, data, options):
    file = tmp_path / "a.csv"
    file.write_bytes(data.encode())
    more = ("--read-option", "comment=#", *(("--read-option", "header=false") if options else ()), *options)
    code, report, said = load("--input", str(file), *ROWS[:4], "--value-json", *ROWS[6:], *more)
    assert (code, report["rows"]) == (2, 0), said


def test_report_has_files_bytes_hidden_names_and_rows_without_a_key(load, folder):
    (folder / "_c.csv").write_text("id,n\n3,three\n")
    (folder / "d.csv").write_text("id,n\n,four\n")
    code, report, said = load("--input", str(folder), *ROWS)
    assert (code, report["rows"], report["null_keys"]) == (0, 3, 1)
    assert report["input"] == {"files": 3, "bytes": 22 + 11, "skipped": [f"{folder}/_c.csv"], "rows": None}
    assert str(folder / "_c.csv") in said


def test_all_columns_as_an_argument_are_rejected(load, folder):
    for value in ("to_json(struct(*))", "to_json(struct(n, *))"):
        code, report, said = load("--input", str(folder), *ROWS[:4], "--value", value, *ROWS[6:])
        assert (code, report["rows"]) == (2, 0), said
    code, report, said = load(
        "--input", str(folder), *ROWS[:4], "--value", "concat(n, '(*)', 2 * 3, (SELECT count(*)))", *ROWS[6:]
    )
    assert (code, report["rows"]) == (0, 2), said


@pytest.mark.parametrize("key", ["explode(split(n, 'n'))", "uuid()", "input_file_name()"])
def test_expression_that_gives_other_rows_in_a_rerun_appends_nothing(load, folder, key):
    code, report, _ = load("--input", str(folder), "--format", "csv", "--key", key, *ROWS[4:])
    assert (code, report["rows"]) == (2, 0)


def test_error_of_an_expression_shows_no_key(load, folder):
    code, report, said = load(
        "--input", str(folder), *ROWS[:4], "--value", "aes_encrypt(n, 'canary-89abcdef')", *ROWS[6:]
    )
    assert (code, "aes_encrypt" in report["message"]) == (2, True)
    assert "canary" not in f"{report} {said}"


def test_suggestions_are_columns_of_the_input(load, folder):
    code, report, _ = load("--input", str(folder), "--format", "csv", "--key", "idd", *ROWS[4:])
    assert (code, "`id`, `n`]" in report["message"], "_input" in report["message"]) == (2, True, False)


def test_null_value_is_rejected_before_any_row_is_appended(load, folder):
    (folder / "c.csv").write_text("id,n\n3,\n")
    code, report, _ = load("--input", str(folder), *ROWS)
    assert (code, report["rows"], report["null_keys"]) == (2, 0, None)
    code, report, _ = load("--input", str(folder), *ROWS, "--tombstones")
    assert (code, report["rows"]) == (0, 3)
    values = {row["key"]: row["value"] for _, row in all_records(load.log)[0]}
    assert values == {b"1": b"one", b"2": b"two", b"3": None}


def test_headers_and_timestamp_are_expressions(load, folder):
    code, report, said = load(
        *("--input", str(folder), *ROWS, "--header", "source=n", "--header", "none=CAST(NULL AS STRING)"),
        *("--timestamp", "timestamp_millis(1000 + CAST(id AS INT))"),
    )
    assert (code, report["rows"]) == (0, 2), said
    rows = sorted((row["key"], row["timestamp"], row["headers"]) for _, row in all_records(load.log)[0])
    assert [row[1].timestamp() for row in rows] == [1.001, 1.002]
    first = rows[0][2]
    assert [(each["key"], each["value"]) for each in first] == [("source", b"one"), ("none", None)]


@pytest.mark.parametrize(
    "time",
    ["timestamp '2024-07-01 12:00:00.123456'", *full("if(id = '1', timestamp '2024-07-01 12:00:00', NULL)")],
)
def test_timestamp_that_the_log_does_not_keep_is_rejected(load, folder, time):
    code, report, said = load("--input", str(folder), *ROWS, "--timestamp", time)
    assert (code, report["rows"]) == (2, 0), said
    assert "--timestamp" in said
    assert load("--input", str(folder), *ROWS, "--timestamp", "1")[0] == 2
    assert (
        load(
            *("--input", str(folder), *ROWS),
            *("--timestamp", f"date_trunc('millisecond', coalesce({time}, timestamp'2026-11-30 00:00:00'))"),
        )[0]
        == 0
    )


def test_query_is_loaded_in_place_of_files(load, spark):
    command = ("--query", "SELECT CAST(id AS STRING) AS id, 'x' AS n FROM range(5)", *ROWS[2:])
    code, report, said = load(*command)
    assert (code, report["rows"]) == (0, 5), said
    code, report, _ = load(*command)
    assert (code, report["already_complete"]) == (0, True)
    code, report, _ = load("--query", "SELECT '1' AS id, 'x' AS n", *ROWS[2:])
    assert (code, report["error"]) == (4, "INPUT_CHANGED")
