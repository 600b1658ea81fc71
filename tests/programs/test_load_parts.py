"""The parts of the bulk load that need no JVM: its command line, progress, report and exit codes."""

import io
import json
import os
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from jobs.verify_log import parse_arguments as verify_arguments
from spark_cas.core import errors
from spark_cas.core.input_list import InputList
from spark_cas.core.plan import EarlierRows, PartitionResult, Plan, Progress
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.load.planning import complete_job, job_results
from spark_cas.log.open import parse_address
from spark_cas.options.parse import parse_write
from spark_cas.programs import bulk_load, load_report
from spark_cas.programs.bulk_load import LoadRun, parse_arguments
from spark_cas.programs.errors import ExitCode, UsageError, exit_code_of, in_short, plain_error
from spark_cas.programs.input.recorded_list import ListedInput
from spark_cas.programs.load_progress import (
    LedgerWatch,
    LoadWatch,
    Phase,
    Snapshot,
    Stages,
    StageWatch,
    describe,
    duration,
    live_progress,
)
from spark_cas.programs.load_report import JobRows, LoadReport, failed_report
from tests.support.memory_log import MemoryLog
from tests.support.writing import JobWriter, plan_of

NEEDED = ["--input", "flights.parquet", "--value-json", "--log", "log"]


def parse(*argv):
    return parse_arguments([*NEEDED, *argv], "bulk_load.py")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConflictError("x"), 3),
        (errors.TruncatedError("x"), 3),
        (errors.FencedError("x"), 1),
        (errors.LoadInProgressError("x"), 1),
        (errors.LayoutChangedError("x"), 3),
        (errors.LayoutChangedError("x", resumable=False), 3),
        (errors.LayoutChangedError("x", resumable=True), 1),
        (errors.ProgressLostError("x"), 3),
        (errors.InputChangedError("x"), 4),
        (errors.OptionError("x"), 2),
        (errors.SchemaError("x"), 2),
        (errors.NotRoutedError("x"), 2),
        (errors.JobMismatchError("x"), 2),
        (UsageError("x"), 2),
        (errors.UnknownOutcomeError("x"), 1),
        (errors.StorageError("x"), 1),
        (errors.NotStoredError("x"), 6),
        (errors.LogNotFoundError("x"), 6),
        (errors.LogNotSharedError("x"), 6),
        (errors.TrimmedError("x"), 6),
        (errors.UnreadableRecordError("x"), 6),
        (errors.ChunkDamagedError("x"), 6),
        (errors.StoreUnsafeError("x"), 6),
        (errors.FormatError("x"), 6),
        (errors.AccessDeniedError("x"), 7),
        (RuntimeError("x"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(error, code):
    assert exit_code_of(error) == code


@pytest.mark.parametrize("kind", errors.ErrorKind)
def test_only_an_error_that_a_retry_may_fix_has_the_exit_code_1(kind):
    error = errors.ERRORS_BY_KIND[kind]("x")
    assert (exit_code_of(error) is ExitCode.FAILED) is error.retriable
    from_spark = errors.error_from_text(str(error))
    assert from_spark is not None
    assert from_spark.retriable is error.retriable


def test_an_error_of_a_worker_is_told_by_its_last_line():
    text = 'Failed: Traceback (most recent call last):\n  File "a.py"\nKeyError: 1\nfoo.OSError: disk\n at b'
    assert in_short(RuntimeError(text)) == "foo.OSError: disk"
    assert in_short(RuntimeError("[UNRESOLVED] no column x\n'Project\n+- Error: no")) == "[UNRESOLVED] no column x"
    assert in_short(RuntimeError()) == "RuntimeError"


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        (["a.parquet", "b/c.PARQUET"], "parquet"),
        (["s3://bucket/day.csv.gz"], "csv"),
        (["a.json", "b.jsonl", "c.ndjson.zst"], "json"),
    ],
)
def test_the_format_is_told_by_the_suffix(paths, found):
    arguments = parse_arguments(["--input", *paths, "--value-json", "--log", "log"], "x")
    assert (arguments.request.format, arguments.request.inputs) == (found, tuple(paths))


@pytest.mark.parametrize(
    "argv",
    [
        ["--input", "folder"],
        ["--input", "b.csv"],
        ["--value", "x"],
        ["--log-option", "routed"],
        ["--unknown"],
        ["--report", "no/such/folder/report.json"],
        ["--report", "/"],
        ["--report", "/no/such/folder/report.json"],
        ["--bootstrap-servers", "a:9092", "--topic", "t"],
        ["--topic", "t"],
        ["--log-option", "job=j"],
        ["--log-option", "Path=elsewhere"],
        ["--log-option", "kafka.bootstrap.servers=a:9092"],
        ["--log-option", "Partitions=8", "--partitions", "2"],
        ["--log-option", "atomic=load", "--atomic", "partition"],
        ["--log-option", "MaxRecordsPerChunk=1", "--max-records-per-chunk", "2"],
        ["--log-option", "lockWaitTimeout=1s", "--log-option", "lockwaittimeout=2s"],
    ],
)
def test_a_wrong_command_line_exits_with_2(argv, capsys):
    with pytest.raises(SystemExit) as caught:
        parse(*argv)
    assert caught.value.code == 2
    assert "bulk_load.py: error: " in capsys.readouterr().err


def test_options_of_the_write_are_handed_on():
    arguments = parse(
        *("--job", "load-1", "--partitions", "4", "--expected-offsets", "none", "--max-records-per-chunk", "7"),
        *("--atomic", "load"),
        *("--log-option", "store.aws_region=eu", "--read-option", "sep==", "--order-by", "a, b", "--order-by", "c"),
    )
    assert (arguments.request.log, arguments.request.job) == ("log", "load-1")
    assert dict(arguments.request.log_options) == {
        "partitions": "4",
        "expectedOffsets": "none",
        "atomic": "load",
        "maxRecordsPerChunk": "7",
        "store.aws_region": "eu",
    }
    assert arguments.request.read_options == (("sep", "="),)
    assert arguments.request.order_by == ("a, b", "c")
    assert "eu" not in repr(arguments.request)
    assert parse().request.job is None


def test_a_topic_is_named_by_its_brokers_and_its_name():
    rows = ("--input", "flights.parquet", "--value-json", "--job", "j")
    topic = ("--bootstrap-servers", "a:9092,b:9092", "--topic", "flights", "--log-option", "kafka.client.id=5")
    request = parse_arguments([*rows, *topic], "x").request
    assert request.log == "kafka://a:9092,b:9092/flights"
    spec = parse_write({**dict(request.log_options), "path": request.log}).spec
    assert spec == KafkaSpec("a:9092,b:9092", "flights", client_options=(("client.id", "5"),))
    with pytest.raises(SystemExit):
        parse_arguments([*rows, "--bootstrap-servers", "a:9092"], "x")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


class FakeStages(StageWatch):
    def __init__(self, *seen):
        self.known = list(seen)

    def stages(self):
        return self.known.pop(0) if len(self.known) > 1 else self.known[0]


class FakeLedger(LedgerWatch):
    def __init__(self, *rows, silent=None):
        self.known = list(rows)
        self.silent = silent

    def rows(self):
        return self.known.pop(0)

    def waiting(self):
        return self.silent


def test_a_load_goes_through_its_phases():
    stages = FakeStages(
        Stages(0, 0, 0, routed=False),
        Stages(30, 4, 1, routed=False),
        Stages(100, 2, 0, routed=True),
        Stages(100, 2, 1, routed=True),
    )
    watch = LoadWatch(FakeLedger(0, 40, 40, 70), stages, verifying=False)
    assert watch.snapshot().phase is Phase.STARTING
    routing = watch.snapshot()
    assert (routing.phase, routing.share, routing.total) == (Phase.ROUTING, 0.25, None)
    assert describe(routing).startswith("30 rows read, 1 of 4 tasks done, ")
    first = watch.snapshot()
    assert (first.phase, first.rows, first.total, first.rows_per_second) == (Phase.APPENDING, 40, 100, None)
    assert describe(first) == "40 of 100 rows"
    second = watch.snapshot()
    assert second.share == 0.7
    assert second.rows_per_second == pytest.approx(second.seconds_left and 30 / second.seconds_left)


def test_what_gives_no_answer_is_told_in_each_phase():
    silent = "waiting for the brokers of topic flights since 12 s"
    ledger = FakeLedger(0, 40, silent=silent)
    watch = LoadWatch(
        ledger, FakeStages(Stages(0, 0, 0, routed=False), Stages(100, 2, 0, routed=True)), verifying=False
    )
    assert describe(watch.snapshot()) == silent
    assert describe(watch.snapshot()) == f"40 of 100 rows, {silent}"


def test_without_stages_the_ledger_is_shown():
    watch = LoadWatch(FakeLedger(5), FakeStages(None), verifying=False)
    assert describe(watch.snapshot()) == "5 rows"


def test_the_ledger_is_watched_from_before_the_log_is_there(tmp_path):
    assert LedgerWatch(parse_address(str(tmp_path / "log")), "job").rows() == 0


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere(terminal):
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100)
    # An address with brackets is no markup.
    seen = Snapshot(Phase.APPENDING, rows=1200, total=2000, rows_per_second=100.0, waiting="waiting for [a]")
    with live_progress(console, lambda: seen):
        wait_for = "1,200 of 2,000 rows, 100 rows/s, waiting for [a]"
        for _ in range(100):
            if wait_for in out.getvalue():
                break
            time.sleep(0.05)
    assert wait_for in out.getvalue()
    assert ("\x1b" in out.getvalue()) is terminal


def result(partition, rows, resumed=0):
    progress = Progress("j", partition, rows, "d", 10, 10 + rows, 1, 0, complete=True, committed_at_ms=0, task="r/0")
    return PartitionResult(progress, resumed_rows=resumed, resolved=1)


COMPLETE = LoadReport("j", "file:///log", ExitCode.COMPLETE, 2.0, JobRows())


def test_a_report_is_a_table_and_a_line_of_json():
    earlier = (EarlierRows("j", (40, 0), ("d", ""), (False, False)),)
    plan = Plan("j.layout-3", "id", 3, (0,) * 3, (0,) * 3, continues="j", earlier=earlier)
    held = JobRows((result(0, 1000), result(2, 500, resumed=200)), plan.earlier_rows)
    report = replace(COMPLETE, in_log=held, appended_rows=1300)
    fields = json.loads(report.to_json())
    assert "\n" not in report.to_json()
    assert (fields["status"], fields["exit_code"], fields["rows"]) == ("complete", 0, 1540)
    assert (fields["appended_rows"], fields["partitions"][1]["resumed_rows"]) == (1300, 200)
    assert report.summary().endswith("1,300 rows appended in 2.0 s, 650 rows/s, 240 by earlier runs")
    out = io.StringIO()
    Console(file=out, width=120).print(report.table())
    assert "resumed at row 200, lost replies resolved: 1" in out.getvalue()
    assert "fresh" in out.getvalue()


def test_the_table_of_a_report_is_not_cut_on_80_columns():
    held = JobRows((result(12, 1_336_776, resumed=1_234_567), result(13, 20)))
    out = io.StringIO()
    Console(file=out, width=80).print(replace(COMPLETE, in_log=held).table())
    assert "…" not in out.getvalue()
    words = "partition rows offset chunks run guarantee 1,336,776 1,336,786 1,234,567, exactly-once"
    assert set(words.split()) <= set(out.getvalue().split())


def test_a_changed_input_of_a_complete_job_is_no_job_that_is_not_complete():
    held = JobRows((result(0, 1000),), complete=True)
    report = failed_report(errors.InputChangedError("x"), "j", "log", 1.0, held)
    assert report.summary() == (
        "job 'j' was complete before, with 1,000 rows: the input differs from that of the complete job, nothing was "
        "appended"
    )
    report = failed_report(UsageError("x"), "j", "log", 1.0, held)
    assert "the input was not compared, nothing was appended" in report.summary()


def test_a_job_that_was_complete_when_an_error_ended_its_run_was_not_so_before():
    held = JobRows((result(0, 1000),), complete=True)
    report = failed_report(KeyboardInterrupt(), "j", "log", 1.0, held, incomplete_before=True)
    assert (report.already_complete, report.completed_meanwhile, report.appended_rows) == (False, True, None)
    assert report.summary() == (
        "job 'j' is complete, with 1,000 rows; it was not complete when this run began, which KeyboardInterrupt ended"
    )


def test_of_a_log_that_was_not_seen_before_it_is_not_told_how_many_rows_were_appended():
    report = replace(COMPLETE, in_log=JobRows((result(0, 1000),)))
    assert report.summary().endswith("with 1,000 rows: the number that this run appended is not known")


BEFORE = JobRows((result(0, 1000),))
NOW = JobRows((result(0, 1200), result(2, 500)))


@pytest.mark.parametrize(
    ("error", "before", "now", "appended"),
    [
        (RuntimeError("x"), BEFORE, NOW, {0: 200, 2: 500}),
        (KeyboardInterrupt(), BEFORE, BEFORE, {0: 0}),
        (errors.InputChangedError("x"), BEFORE, NOW, {0: 200, 2: 500}),
        (errors.InputChangedError("x", appended_rows={2: 3}), BEFORE, NOW, {0: 0, 2: 3}),
        (errors.InputChangedError("x", appended_rows={2: 3}), None, NOW, {0: 0, 2: 3}),
        (RuntimeError("x"), None, NOW, None),
        (RuntimeError("x"), replace(BEFORE, earlier_rows=1), NOW, None),
        (RuntimeError("x"), BEFORE, replace(NOW, complete=True), None),
    ],
)
def test_a_failed_report_has_the_rows_that_the_run_appended(error, before, now, appended):
    report = failed_report(error, "j", "log", 1.0, now, incomplete_before=True, before=before)
    fields = json.loads(report.to_json())
    assert fields["appended_rows"] == (None if appended is None else sum(appended.values()))
    found = {each["partition"]: each["appended_rows"] for each in fields["partitions"]}
    assert found == (appended or dict.fromkeys((0, 2)))
    assert ("this run appended" in report.summary()) == (appended is not None)


def test_a_failed_report_of_a_log_that_cannot_be_read_has_the_rows_of_the_error():
    error = errors.InputChangedError("x", appended_rows={2: 3})
    assert failed_report(error, "j", "log", 1.0, None).appended_rows == 3
    assert failed_report(RuntimeError("x"), "j", "log", 1.0, None, before=BEFORE).appended_rows is None


def test_failed_report_counts_no_appended_rows_before_spark_starts():
    for now in (None, NOW):
        report = failed_report(errors.StorageError("x"), "j", "log", 1.0, now, started=False)
        assert report.appended_rows == 0
        assert report.summary().endswith("; this run appended 0")
        assert set((report.appended or {}).values()) <= {0}


def test_rows_that_the_ledger_does_not_know_are_not_said_to_be_missing():
    report = failed_report(errors.ProgressLostError("x"), "j", "log", 1.0, JobRows())
    assert report.summary() == "job 'j' is not complete: none of its rows is known to be in the log"


CAUSES = [
    (
        [
            (
                "SparkException",
                "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///a.csv.  SQLSTATE: KD001",
            ),
            (
                "SparkException",
                "[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed: [1].\nParse Mode: F SQLSTATE: 22023",
            ),
            ("SparkRuntimeException", '[MALFORMED_CSV_RECORD] Malformed CSV record: 1,"a SQLSTATE: KD000'),
        ],
        UsageError,
        '[MALFORMED_CSV_RECORD] Malformed CSV record: 1,"a (in file:///a.csv)',
    ),
    (
        [
            (
                "SparkException",
                "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file s3a://b/a.csv.  SQLSTATE: KD001",
            ),
            ("AccessDeniedException", "s3a://b/a.csv: Forbidden"),
        ],
        UsageError,
        "AccessDeniedException: s3a://b/a.csv: Forbidden",
    ),
    (
        [
            (
                "SparkException",
                "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file s3a://b/a.csv.  SQLSTATE: KD001",
            ),
            ("SocketTimeoutException", "Read timed out"),
        ],
        RuntimeError,
        "SocketTimeoutException: Read timed out",
    ),
    (
        [("SparkException", "Job aborted"), ("IllegalArgumentException", "nanos > 999999999 or < 0")],
        UsageError,
        "ORC file of PyArrow",
    ),
    (
        [("SparkException", "Job aborted due to stage failure"), ("IOException", "No space left on device")],
        RuntimeError,
        "IOException: No space left on device",
    ),
]


@pytest.mark.parametrize(("causes", "kind", "text"), CAUSES)
def test_error_has_the_text_of_the_root_cause_and_the_file(causes, kind, text):
    class Java:
        """A JVM exception as Py4J returns it."""

        def __init__(self, name, message, cause):
            self.getClass = lambda: self
            self.getSimpleName = lambda: name
            self.getMessage = lambda: message
            self.getCause = lambda: cause

    link = None
    for name, message in reversed(causes):
        link = Java(name, message, link)
    error = RuntimeError("An error occurred while calling o126.save.\n: " + causes[0][1])
    error.java_exception = link  # type: ignore[attr-defined]
    found = plain_error(error)
    assert type(found) is kind
    assert text in str(found)
    assert "SQLSTATE" not in str(found)
    assert "\n" not in str(found)


def test_a_failure_is_reported_with_its_token():
    error = errors.ConflictError("partition 0: ...", partition=0, next_offsets={0: 57})
    fields = json.loads(failed_report(error, "j", "log", 1.0, None).to_json())
    assert (fields["status"], fields["exit_code"]) == ("refused", ExitCode.REFUSED)
    assert (fields["error"], fields["message"]) == ("CONFLICT", "partition 0: ...")
    assert fields["next_offsets"] == {"0": 57}


@pytest.mark.parametrize("row", ["[CONFLICT] x", "spark_cas.core.errors.ConflictError: [CONFLICT] x"])
def test_a_code_in_a_quoted_row_does_not_change_the_exit_code(row):
    for error in (
        ValueError(row),
        errors.StorageError(f"the value is {row}"),
        RuntimeError(f"pyspark.X: spark_cas.core.errors.StorageError: [STORAGE] the value is {row}"),
    ):
        assert exit_code_of(plain_error(error)) is ExitCode.FAILED


@pytest.fixture
def complete_log(monkeypatch):
    """A log in which job load-1 is complete, and a function that sets the log that a load opens."""
    log = MemoryLog()
    log.create(1)
    plan = log.record_plan(plan_of(log, "load-1"))
    JobWriter(log, plan).must_append("a", complete=True)
    complete_job(log, plan, job_results(log, "load-1"))

    def opens(log):
        for module in (bulk_load, load_report):
            monkeypatch.setattr(module, "open_log", lambda _: log)

    opens(log)
    return log, opens


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("the JVM has ended")])
def test_error_after_the_completion_is_reported(complete_log, load_again, monkeypatch, error):
    log, _ = complete_log
    entry = log._entries.pop(("completion", "load-1"))

    def write(*_, **__):
        log._entries["completion", "load-1"] = entry
        raise error

    monkeypatch.setattr(LoadRun, "_write", write)
    monkeypatch.setattr(bulk_load, "listed_input", lambda *_: ListedInput((), InputList((), ()), ()))
    code, report = load_again(start=lambda _: SimpleNamespace(stop=lambda: None))
    assert code in (1, 130)
    assert (report["already_complete"], report["completed_meanwhile"], report["rows"]) == (False, True, 1)


@pytest.fixture
def load_again(capsys):
    """A function that runs job load-1 and returns the exit code and the JSON line. By default no Spark may start."""

    def load_again(*argv, start=lambda _: pytest.fail("a session")):
        code = bulk_load.main([*NEEDED, "--job", "load-1", *argv], "bulk_load.py", start)
        return code, json.loads(capsys.readouterr().out.splitlines()[-1])

    return load_again


@pytest.mark.parametrize("argv", [("--job", "[/a]"), ("--log", "~nosuchuser/log"), ("--log", "s3://[x/y")])
def test_a_wrong_name_or_address_is_told_in_a_line_of_json(load_again, argv):
    code, report = load_again(*argv)
    assert (code, report["error"], report["rows"]) == (2, "OPTION", 0)


def test_a_job_that_was_completed_on_another_log_of_that_name_is_refused(complete_log, load_again):
    log, opens = complete_log
    code, report = load_again()
    assert (code, report["already_complete"], report["rows"]) == (0, True, 1)
    made_anew = MemoryLog()
    made_anew._entries = log._entries
    made_anew.create(1)
    opens(made_anew)
    code, report = load_again()
    assert (code, report["error"], report["already_complete"], report["rows"]) == (3, "TRUNCATED", False, 0)
    assert "planned on another log that had this name" in report["message"]


def test_job_whose_log_was_deleted_is_reported(complete_log, load_again):
    log, opens = complete_log
    other = MemoryLog()
    other._entries = log._entries
    opens(other)
    code, report = load_again()
    assert (code, report["error"], report["rows"]) == (3, "TRUNCATED", 0)
    assert "that no longer exists" in report["message"]


def test_an_option_that_no_argument_says_is_taken():
    arguments = parse_arguments([*NEEDED, "--log-option", "atomic=false", "--log-option", "partitions=4"], "load")
    assert dict(arguments.request.log_options) == {"atomic": "false", "partitions": "4"}


@pytest.mark.parametrize(
    "argv", [("--atomic", "load"), ("--log-option", "compare=key", "--log-option", "checkExpectedOffsets=true")]
)
def test_a_complete_job_that_comes_again_as_another_kind_of_write_is_refused(complete_log, load_again, argv):
    code, report = load_again(*argv)
    assert (code, report["error"], report["rows"]) == (2, "JOB_MISMATCH", 1)
    assert "1 rows of job 'load-1' are in the log" in report["message"]


def test_while_a_load_runs_no_earlier_report_is_there_and_one_that_cannot_be_written_changes_no_code(
    monkeypatch, tmp_path, capsys
):
    file = tmp_path / "reports" / "report.json"
    file.parent.mkdir()

    def run(then=lambda: None):
        def load(*_, **__):
            assert not file.exists()
            then()
            return replace(COMPLETE, job="load-1")

        monkeypatch.setattr(LoadRun, "run", load)
        argv = [*NEEDED, "--job", "load-1", "--report", str(file)]
        code = bulk_load.main(argv, "bulk_load.py", lambda _: pytest.fail("a session"))
        return code, *capsys.readouterr()

    assert run()[:2] == (0, file.read_text())
    assert [*file.parent.iterdir()] == [file]
    code, out, stderr = run(then=file.parent.rmdir)
    assert (code, json.loads(out)["exit_code"]) == (0, 0)
    assert "the report was not written: " in stderr


def test_a_report_in_a_folder_that_may_not_be_written_is_a_wrong_call(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "access", lambda folder, _: folder != tmp_path)
    with pytest.raises(SystemExit):
        parse("--report", str(tmp_path / "report.json"))


def test_rows_of_a_query_are_compared_without_files():
    argv = ["--query", "SELECT 1 AS n", "--key", "n", "--value-json", "--log", "log"]
    request = verify_arguments(argv, "verify_log.py").request
    assert (request.format, request.query, request.inputs, request.tombstones) == ("query", "SELECT 1 AS n", (), True)
