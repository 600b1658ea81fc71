"""The bulk load: the loaded rows, and the exit codes. Most tests share the session, some start real programs."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from spark_cas import open_log
from spark_cas.core.errors import LogNotFoundError
from spark_cas.log.expanding import expand_log
from spark_cas.log.load.planning import pin_plan
from spark_cas.options.parse import parse_write
from spark_cas.programs.bulk_load import is_recorded
from tests.long import full
from tests.programs.loading import all_records

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

PATIENCE = 240
"""Seconds that a program may take on a busy machine."""


def flights(rows=1000):
    """Return the flights of each aircraft in disorder. Every seventh row has no key."""
    tails = [None if row % 7 == 0 else f"N{row % 50}" for row in range(rows)]
    return pa.table({"tail": tails, "number": [(row * 37) % rows for row in range(rows)]})


def write_parquet(table, path):
    pq.write_table(table, path)
    return str(path)


def values(log_path):
    return sorted(json.loads(row["value"])["number"] for records in all_records(log_path) for _, row in records)


@pytest.fixture
def parquet(tmp_path):
    return write_parquet(flights(), tmp_path / "flights.parquet")


BY_TAIL = ("--key", "tail", "--value-json", "--partitions", "4")


def test_a_load_as_a_whole_and_the_same_again(load, parquet):
    command = ("--input", parquet, *BY_TAIL, "--job", "load-1", "--atomic", "load")
    code, report, told = load(*command)
    assert (code, report["status"], report["appended_rows"]) == (0, "complete", 1000)
    assert "1,000 rows appended" in told
    assert values(load.log) == list(range(1000))
    code, report, _ = load(*command)
    assert (code, report["already_complete"]) == (0, True)


def test_a_load_and_the_same_load_again(load, parquet, tmp_path):
    command = ("--input", parquet, *BY_TAIL, "--job", "load-1", "--report", str(tmp_path / "report.json"))
    code, report, told = load(*command)
    assert (code, report["status"], report["appended_rows"]) == (0, "complete", 1000)
    assert json.loads((tmp_path / "report.json").read_text()) == report
    assert "1,000 rows appended" in told
    ends = {each["partition"]: each["end_offset"] for each in report["partitions"]}
    assert ends == {partition: len(records) for partition, records in enumerate(all_records(load.log)) if records}
    assert values(load.log) == list(range(1000))

    partitions = report["partitions"]
    for each in partitions:
        assert each["attempts"] == each["chunks"] == 1
        assert (each["has_offset"], each["has_timestamp"], each["start_offset"]) == (True, True, 0)
        assert (each["resumed_rows"], each["resolved"], each["aborted_rows"]) == (0, 0, 0)

    code, report, told = load(*command)
    assert (code, report["already_complete"], report["appended_rows"], report["rows"]) == (0, True, 0, 1000)
    assert report["partitions"] == partitions, "the recorded result, and not that of this run"
    assert "nothing was appended" in told
    assert load.sessions == 1


@pytest.mark.parametrize(
    "options", [(), *full(("--log-option", "idempotence=off"))], ids=["exactly once", "at least once"]
)
def test_report_is_a_page_if_its_name_ends_in_html(load, parquet, tmp_path, options):
    page = tmp_path / "load.html"
    assert load("--input", parquet, *BY_TAIL, *options, "--report", str(page))[0] == 0
    assert "1,000 rows appended" in page.read_text()
    assert len(re.findall("<tr><td>[0-3]</td>", page.read_text())) == 4
    rates = re.findall("([0-9.]+) s: ([0-9,]+) rows/s appending", page.read_text())
    assert rates
    code, _, _ = load("--input", str(tmp_path / "absent.parquet"), *BY_TAIL, "--report", str(page))
    assert code == 2
    assert "is not complete" in page.read_text()


def test_verify_reads_the_input_again_and_sees_a_changed_row(load, parquet):
    command = ("--input", parquet, *BY_TAIL, "--job", "load-1", "--verify")
    assert load(*command)[0] == 0
    code, report, told = load(*command)
    assert (code, report["already_complete"], report["verified"]) == (0, True, True)
    assert "its input was read and is the same" in told
    changed = flights().to_pydict()
    changed["number"][500] = 1_000_000
    write_parquet(pa.table(changed), parquet)
    code, report, told = load(*command)
    assert (code, report["status"], report["error"]) == (4, "input_changed", "INPUT_CHANGED")
    assert (
        "job 'load-1' was complete before, with 1,000 rows: the input differs from that of the complete job" in told
    )
    assert "is not complete" not in told
    assert "Traceback" not in told
    assert values(load.log) == list(range(1000))


def test_a_stale_expected_offset_is_refused(load, parquet):
    assert load("--input", parquet, *BY_TAIL, "--job", "load-1")[0] == 0
    code, report, told = load("--input", parquet, *BY_TAIL, "--job", "load-2", "--expected-offsets", '{"0": 0}')
    assert (code, report["status"], report["error"]) == (3, "refused", "CONFLICT")
    assert "error: [CONFLICT] partition 0: expected offset 0" in told
    assert "Traceback" not in told
    assert (report["partitions"], len(values(load.log))) == ([], 1000), "no row in any partition"
    # The printed option is ready to be pasted: a shell passes exactly these offsets to the program.
    (onward,) = re.findall(r"^to continue, run the same command with (.+)$", told, re.MULTILINE)
    code, report, _ = load("--input", parquet, *BY_TAIL, "--job", "load-2", *shlex.split(onward))
    assert (code, report["rows"]) == (0, 1000)
    assert len(values(load.log)) == 2000


def test_a_load_during_an_expansion_may_be_retried(load, parquet):
    command = ("--input", parquet, *BY_TAIL, "--job", "load-2")
    assert load("--input", parquet, *BY_TAIL, "--job", "load-1")[0] == 0
    with open_log(load.log) as log:
        log.begin_expansion(log.layout(), 6)
    code, report, _ = load(*command)
    assert (code, report["exit_code"], report["error"]) == (1, 1, "LAYOUT_CHANGED")
    with open_log(load.log) as log:
        expand_log(log, 6)
    code, report, _ = load(*command)
    assert (code, report["rows"], len(values(load.log))) == (0, 1000, 2000)


@pytest.mark.parametrize(("options", "can_resume"), [((), True), (("--log-option", "compare=key"), False)])
def test_exit_code_of_an_interrupted_load_shows_whether_it_resumes_after_an_expansion(
    load, tmp_path, options, can_resume
):
    table = flights()
    file = write_parquet(table.set_column(0, "tail", table["number"].cast("string")), tmp_path / "keyed.parquet")
    command = ("--input", file, *BY_TAIL, *options)
    assert load(*command, "--job", "load-1")[0] == 0
    interrupted = parse_write({"path": load.log, "job": "load-2", **dict(each.split("=") for each in options[1:])})
    with open_log(load.log) as log:
        pin_plan(log, "load-2", interrupted.expected_offsets, compare=interrupted.compare)
        log.begin_expansion(log.layout(), 6)
    again = (*command, "--job", "load-2")
    refused = (1, "failed", True) if can_resume else (3, "refused", False)
    code, report, _ = load(*again)
    assert report["error"] == "LAYOUT_CHANGED"
    assert (code, report["status"], report["resumable"]) == refused
    with open_log(load.log) as log:
        expand_log(log, 6)
    code, report, _ = load(*again)
    assert (code, report["status"], report["resumable"]) == ((0, "complete", None) if can_resume else refused)
    assert len(values(load.log)) == (2000 if can_resume else 1000)


def test_without_idempotence_what_each_partition_got_is_in_the_report_alone(load, parquet, tmp_path):
    blind = ("--input", parquet, *BY_TAIL, "--log-option", "idempotence=off")
    for rows in (1000, 2000):
        code, report, told = load(*blind)
        assert (code, report["job"], report["rows"], report["appended_rows"]) == (0, None, 1000, 1000)
        assert {each["guarantee"] for each in report["partitions"]} == {"at-least-once"}
        assert "a rerun appends all rows again" in told
        assert len(values(load.log)) == rows
    code, report, told = load(*blind, "--job", "load-1")
    assert (code, report["error"]) == (2, "OPTION")
    assert "option job needs idempotence, which an option or the log's defaults set to off" in told
    own = tmp_path / "own.json"
    requested = ("--log-option", "idempotence=requested", "--log-option", f"report={own}")
    code, report, _ = load("--input", parquet, *BY_TAIL, *requested)
    assert own.exists()
    assert {each["guarantee"] for each in report["partitions"]} == {"exactly-once"}
    assert report["job"].startswith("job-")


@pytest.mark.parametrize("job", [(), ("--job", "load-1")])
def test_where_the_driver_is_elsewhere_a_load_that_may_be_less_names_its_report(load, parquet, monkeypatch, job):
    monkeypatch.setattr("pyspark.sql.utils.is_remote", lambda: True)
    code, _, told = load("--input", parquet, *BY_TAIL, *job, "--log-option", "idempotence=requested")
    assert code == 2
    assert "Name a file on the driver with --log-option report=FILE" in told
    with open_log(load.log) as log, pytest.raises(LogNotFoundError):
        log.layout()


def test_a_completion_is_looked_for_only_where_the_write_leaves_one(path):
    with open_log(path) as log:
        log.create(1)
    given = {"path": path, "job": "load-1"}
    assert is_recorded(parse_write(given))
    assert is_recorded(parse_write({**given, "idempotence": "requested"}))
    assert not is_recorded(parse_write({"path": path, "idempotence": "off"}))


@pytest.mark.parametrize("suffix", ["csv", "json", "csv.gz"])
def test_csv_and_json(load, tmp_path, suffix):
    file = tmp_path / f"flights.{suffix}"
    if suffix == "json":
        file.write_text("".join(json.dumps(row) + "\n" for row in flights().to_pylist()))
    else:
        with pa.output_stream(str(file)) as out:
            pa_csv.write_csv(flights(), out)
    code, report, _ = load("--input", str(file), "--schema", "tail STRING, number INT", *BY_TAIL, "--job", "load-1")
    assert (code, report["rows"]) == (0, 1000)
    assert values(load.log) == list(range(1000))
    assert None in {row["key"] for records in all_records(load.log) for _, row in records}


def test_csv_is_that_of_rfc_4180(load, tmp_path):
    file = tmp_path / "said.csv"
    file.write_bytes(b'id,said\r\n1,"say ""hi"", ok"\r\n2,"two\r\nlines, one value"\r\n3,c:\\dir\\\r\n')
    code, report, told = load("--input", str(file), "--value", "id || said", "--partitions", "1", "--job", "load-1")
    assert (code, report["rows"]) == (0, 3), told
    (records,) = all_records(load.log)
    assert {row["value"] for _, row in records} == {b'1say "hi", ok', b"2two\r\nlines, one value", b"3c:\\dir\\"}


@pytest.mark.parametrize("schema", [(), *full(("--schema", "number INT, tail STRING"))])
def test_columns_of_csv_in_another_order_are_not_loaded_into_the_wrong_ones(load, tmp_path, schema):
    (tmp_path / "a.csv").write_text("number,tail\n1,N1\n")
    (tmp_path / "b.csv").write_text("tail,number\n2,3\n")
    command = ("--input", f"{tmp_path}/*.csv", "--format", "csv", *schema, *BY_TAIL, "--job", "load-1")
    code, report, told = load(*command)
    assert (code, report["rows"]) == (2, 0)
    assert (report["error"], "b.csv" in told) == ("INPUT_UNREADABLE", True)
    assert "--read-option enforceSchema=true" in told
    code, report, told = load(*command, "--read-option", "enforceSchema=true")
    assert (code, report["rows"]) == (0, 2), told


def test_csv_without_a_header(load, tmp_path):
    for number in range(2):
        (tmp_path / f"{number}.csv").write_text(f"N1,{number}\n")
    code, report, told = load(
        *("--input", f"{tmp_path}/*.csv", "--format", "csv", "--schema", "tail STRING, number INT", *BY_TAIL),
        *("--read-option", "header=false", "--job", "load-1"),
    )
    assert (code, report["rows"], values(load.log)) == (0, 2, [0, 1]), told


BROKEN = {
    "a.csv": b'tail,number\nN1,1\nN2,"a"b,c,d\n',
    "a.json": b'{"tail": "N1", "number": 1}\n{"tail": \n',
    "a.parquet": b"PAR1 and no more of it",
}


@pytest.mark.parametrize("name", BROKEN)
def test_first_line_names_the_file_that_cannot_be_read(load, tmp_path, name):
    (tmp_path / name).write_bytes(BROKEN[name])
    schema = () if name == "a.parquet" else ("--schema", "tail STRING, number INT")
    code, report, told = load("--input", str(tmp_path / name), *schema, *BY_TAIL, "--job", "load-1")
    assert (code, report["status"], report["rows"]) == (2, "usage", 0)
    (error,) = re.findall(r"^error: (.+)$", told, re.MULTILINE)
    assert str(tmp_path / name) in error
    assert not re.search(r"Traceback|Py4J|^\s+at ", told, re.MULTILINE)
    assert len(told.splitlines()) < 12


ERROR = "spark_cas.core.errors.FencedError: [FENCED] x SQLSTATE: XX000"
WORKER = "org.apache.spark.api.python.PythonException: An exception was thrown from the Python worker"
HOSTILE = {
    "token": "[CONFLICT] partition 0: x",
    "error": ERROR,
    "lines": f"a\n{ERROR}\nCaused by: {WORKER}:\n{ERROR}",
    "traceback": 'a\nTraceback (most recent call last):\n  File "x", line 1, in x\nValueError: x',
}


@pytest.mark.parametrize("row", ["lines", "traceback", *full("token", "error")])
def test_a_code_in_a_row_of_the_input_does_not_decide_the_exit_code(load, tmp_path, row):
    value = HOSTILE[row].replace('"', '""')
    file = tmp_path / "flights.csv"
    file.write_text(f'tail,number\nN1,1\n"{value}",2\n')
    to_log = ("--input", str(file), "--partitions", "2", "--job", "load-1")
    code, report, told = load(*to_log, "--value", "CAST(tail AS INT)", "--read-option", "inferSchema=false")
    assert (code, report["error"], report["appended_rows"]) == (2, "UsageError", 0), told
    file.write_text(f'tail,number\nN1,1\n"{value}","x"\n')
    schema = ("--schema", "tail STRING, number INT")
    code, report, told = load(*to_log, *schema, "--value", "tail || number")
    assert (code, report["error"], report["appended_rows"]) == (2, "INPUT_UNREADABLE", 0), told


def test_a_file_of_another_schema_is_told_with_column_and_types(load, parquet):
    other = write_parquet(pa.table({"tail": ["N1"], "number": ["1"]}), Path(parquet).parent / "other.parquet")
    code, _, told = load("--input", parquet, other, *BY_TAIL, "--job", "load-1")
    assert code == 2
    assert all(word in told for word in ("other.parquet", "number", "string", "bigint"))


def test_a_log_that_is_not_there_is_named(load, parquet):
    told = load("--input", parquet, "--value-json", "--job", "load-1")[2]
    assert f"[LOG_NOT_FOUND] there is no log at {load.log}." in told
    assert "the log of the load is" not in told  # the error names it already


def test_several_inputs_in_an_order_of_columns_that_are_not_loaded(load, tmp_path):
    one = write_parquet(flights(500), tmp_path / "one.parquet")
    two = write_parquet(flights(500), tmp_path / "two.parquet")
    code, report, _ = load(
        *("--input", one, two, "--value", "CAST(number AS STRING)", "--partitions", "3"),
        *("--order-by", "number % 10 DESC", "--order-by", "tail ASC", "--order-by", "number", "--job", "load-1"),
    )
    assert (code, report["rows"]) == (0, 1000)
    for records in all_records(load.log):
        remainders = [int(row["value"]) % 10 for _, row in records]
        assert remainders == sorted(remainders, reverse=True)
        assert {row["key"] for _, row in records} <= {None}


def test_without_a_job_name_a_warning_and_a_second_load(load, parquet):
    jobs = set()
    for rows in (1000, 2000):
        code, report, told = load("--input", parquet, *BY_TAIL)
        assert (code, len(values(load.log))) == (0, rows)
        assert "no --job was given" in told
        jobs.add(report["job"])
    assert len(jobs) == 2


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (("--key", "tial"), 2, "tial"),
        (("--key", "tail +"), 2, "PARSE_SYNTAX_ERROR"),
        pytest.param(
            ("--order-by", "number DSC", "--partitions", "4"), 2, "PARSE_SYNTAX_ERROR", marks=pytest.mark.full
        ),
        pytest.param(
            ("--order-by", "number, tail", "--partitions", "4"), 2, "PARSE_SYNTAX_ERROR", marks=pytest.mark.full
        ),
        (("--key", "number", "--partitions", "4"), 2, "bigint"),
        (("--log-option", "jbo=x"), 2, "Did you mean job?"),
        (("--expected-offsets", "latest"), 2, "expected offsets must be"),
        (("--job", "a/b"), 2, "option job"),
        (("--partitions", "0"), 2, "partitions must be a whole number"),
        (("--input", "no-such-file.parquet"), 2, "no-such-file.parquet"),
        ((), 6, "[LOG_NOT_FOUND] there is no log"),
        (("--partitions", "4", "--max-bytes-per-chunk", "20"), 2, "Raise option maxBytesPerChunk, "),
    ],
)
def test_what_is_wrong_is_said_in_a_line_and_an_exit_code(load, parquet, argv, code, said):
    found, report, told = load("--input", parquet, "--value-json", "--job", "load-1", *argv)
    assert (found, report["rows"]) == (code, 0)
    assert said in told
    assert "Traceback" not in told
    assert "JVM stacktrace" not in told


def test_a_stack_trace_is_shown_when_asked_for(load, parquet):
    assert "Traceback" in load("--input", parquet, "--value-json", "--job", "j", "--traceback")[2]


@pytest.fixture
def programs(tmp_path):
    """A function that starts real programs in process groups of their own, which are killed after the test."""
    started = []

    def start(*command, without=()):
        env = os.environ | {
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "SPARK_CONF_DIR": str(ROOT / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        env = {name: value for name, value in env.items() if name not in without}
        streams = {"stdout": subprocess.PIPE, "stderr": (tmp_path / "told.txt").open("w"), "text": True}
        process = subprocess.Popen(command, env=env, cwd=tmp_path, start_new_session=True, **streams)
        streams["stderr"].close()
        started.append(process)
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.full
@pytest.mark.timeout(2 * PATIENCE)
def test_spark_submit_shows_progress_and_the_sentence_also_without_settings_for_its_log(programs, path, tmp_path):
    (tmp_path / "a.csv").write_bytes(BROKEN["a.csv"])
    command = submit("--input", str(tmp_path / "a.csv"), *BY_TAIL, "--log", path, "--job", "load-1")
    process = programs(*command, without=("SPARK_CONF_DIR",))
    out, _ = process.communicate(timeout=PATIENCE)
    told = (tmp_path / "told.txt").read_text()
    assert process.returncode == 2
    lines = [line for line in (out + told).splitlines() if not line.startswith(("starting: ", "routing: "))]
    assert sum(line.startswith("error: [INPUT_UNREADABLE] ") for line in lines) == 1
    # Spark's messages before the program begins, then the error, the rows in the log, and the JSON line.
    assert len(lines) <= 12, lines


def submit(*argv):
    """Return the command with which a user submits the load, with retries of tasks."""
    return (BIN / "spark-submit", "--master", "local[2,4]", ROOT / "jobs" / "bulk_load.py", *argv)


def by_itself(*argv):
    return (sys.executable, "-m", "spark_cas.cli", "load", *argv)


def result_of(process):
    out, _ = process.communicate(timeout=PATIENCE)
    return process.returncode, json.loads(out.splitlines()[-1])


@pytest.mark.timeout(4 * PATIENCE)
def test_ctrl_c_under_spark_submit_then_the_same_command(programs, path, tmp_path):
    command = submit(*interruptible(path, tmp_path))
    interrupt_while_appending(programs(*command), path)
    code, report = result_of(programs(*command))
    assert (code, report["rows"]) == (0, ROWS)
    assert 0 < report["appended_rows"] < ROWS
    assert values(path) == list(range(ROWS))


@pytest.mark.full
@pytest.mark.timeout(4 * PATIENCE)
def test_ctrl_c_in_a_plain_process_then_the_same_command(programs, path, tmp_path):
    command = by_itself(*interruptible(path, tmp_path))
    stopped = interrupt_while_appending(programs(*command), path)
    report = json.loads(stopped.splitlines()[-1])
    assert report["status"] == "interrupted"
    # No worker outlives the session, so the count does not change.
    assert 0 < report["rows"] == len(values(path))
    told = (tmp_path / "told.txt").read_text()
    assert "interrupted: the same command resumes" in told
    assert not re.search("Traceback|KeyboardInterrupt|py4j", told), told
    code, report = result_of(programs(*command))
    assert (code, report["rows"]) == (0, ROWS)
    told = (tmp_path / "told.txt").read_text()
    assert re.search(r"^(routing: [\d,]+ rows read|appending: [\d,]+ of 20,000 rows)", told, re.MULTILINE), told
    assert 0 < report["appended_rows"] < ROWS
    assert values(path) == list(range(ROWS))


ROWS = 20_000


def interruptible(path, tmp_path):
    """Return a load of many chunks. Workers append the rows that their tasks hold, but do not finish the load."""
    parquet = write_parquet(flights(ROWS), tmp_path / "many.parquet")
    return ("--input", parquet, *BY_TAIL, "--log", path, "--job", "load-1", "--max-records-per-chunk", "20")


def interrupt_while_appending(process, path):
    """Send Ctrl-C to the process group, as a terminal does, after the first chunk was appended."""
    deadline = time.monotonic() + PATIENCE
    while not list(Path(path).glob("partition=*/*.parquet")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert 0 < len(values(path)) < ROWS
    return out
