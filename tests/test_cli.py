"""`spark-cas` without Spark: reading and trimming a log, and the error messages."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from spark_cas import open_log
from spark_cas.cli.diagnosing import _confirm
from spark_cas.cli.jobs_and_offsets import table_of as printed_table
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.log import clock
from spark_cas.log.load.locking import Applicant, acquire_lock
from spark_cas.log.load.planning import complete_job, pin_plan
from spark_cas.log.objects import ObjectLog
from spark_cas.programs.errors import UsageError
from tests.support.loads import run_job
from tests.support.programs import run_cli as run
from tests.support.writing import TIME_MS, JobWriter, plan_of, table_of

ROOT = Path(__file__).parents[1]


@pytest.fixture
def log(tmp_path):
    """A log with two partitions, and a job that completed in the first and stopped in the second."""
    address = str(tmp_path / "flights")
    with open_log(address) as opened:
        opened.create(2)
        plan = opened.record_plan(plan_of(opened, "load-1"))
        first = JobWriter(opened, plan)
        first.must_append("a", "b")
        first.must_append("c", complete=True)
        JobWriter(opened, plan, partition=1).must_append("d")
    return address


def cells(table):
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in table.splitlines() if line[0] == "│"]


def test_offsets(log):
    shown = run("offsets", log)
    assert shown.code == 0
    assert cells(shown.out) == [["0", "0", "3", "3"], ["1", "0", "1", "1"]]
    assert "flights, layout epoch 0" in shown.out


def test_progress(log):
    shown = run("progress", log, "--job", "load-1")
    assert [row[:7] for row in cells(shown.out)] == [
        ["load-1", "0", "3", "0", "3", "2", "yes"],
        ["load-1", "1", "1", "0", "1", "1", "no"],
    ]
    assert cells(run("progress", log).out) == cells(shown.out)
    code, _, told = run("progress", log, "--job", "other")
    assert (code, "knows no job 'other'" in told) == (2, True)


def test_progress_of_a_job_includes_its_rounds(log):
    with open_log(log) as opened:
        plan = pin_plan(opened, "fix.unchanged.1", ExpectedOffsets("none"), compare="key", round_of="fix")
        JobWriter(opened, plan).must_append("e")
    for job in ("fix", "fix.unchanged.1"):
        assert [row[:3] for row in cells(run("progress", log, "--job", job).out)] == [["fix.unchanged.1", "0", "1"]]


def test_trim(log):
    code, out, _ = run("trim", log, "--partition", "0", "--before", "2")
    assert (code, out) == (0, "partition 0 now starts at offset 2 and ends at 3\n")
    code, _, told = run("trim", log, "--partition", "0", "--before", "9")
    assert code == 2
    assert "spark-cas trim: error: " in told


def test_trim_by_age_deletes_older_records_of_each_partition(tmp_path, monkeypatch):
    address, day_ms = str(tmp_path / "flights"), 86_400_000
    with open_log(address) as opened:
        opened.create(2)
        for age_days, rows in ((9, "a"), (8, "b"), (2, "c"), (1, "d")):
            monkeypatch.setattr(clock, "now_ms", lambda age_days=age_days: TIME_MS - age_days * day_ms)
            run_job(opened, f"load-{rows}", {0: [rows, rows], 1: [rows]} if age_days != 2 else {0: [rows, rows]})
    monkeypatch.setattr(clock, "now_ms", lambda: TIME_MS)
    trim = ("trim", address, "--older-than")
    starts = [int(row[1]) for row in cells(run("offsets", address).out)]
    assert "partition 0 would start at offset 4" in run(*trim, "7d", "--dry-run").out
    assert [int(row[1]) for row in cells(run("offsets", address).out)] == starts
    assert run(*trim, "7d", "--partition", "1").code == 0
    assert [int(row[1]) for row in cells(run("offsets", address).out)] == [0, 2]
    assert run(*trim, "7d").code == 0
    assert [int(row[1]) for row in cells(run("offsets", address).out)] == [4, 2]
    assert "deleted nothing" in run(*trim, "30d").out
    assert "never the newest chunk" in run(*trim, "0d").out


def test_changes_are_printed_as_json(log):
    with open_log(log) as opened:
        plan = pin_plan(opened, "whole-1", ExpectedOffsets("end"), whole=True)
        JobWriter(opened, plan, 1).must_append("a", "b")
        assert acquire_lock(opened, Applicant("load-2", "run"), ExpectedOffsets("end")) is not None
    for argv, result in (
        (("abort", "whole-1", log), {"job": "whole-1", "locked_partitions": None}),
        (("abort", "load-2", log), {"job": "load-2", "locked_partitions": [0, 1]}),
        (
            ("trim", log, "--partition", "0", "--before", "2"),
            {"partition": 0, "start_offset": 2, "end_offset": 3, "requested_offset": 2},
        ),
        (("forget", "load-1", log, "--force"), {"job": "load-1", "rows": 4}),
        (("expand", log, "--partitions", "4"), {"log": "flights", "partitions": 4, "layout_epoch": 1}),
    ):
        planned = {**result, "layout_epoch": None} if argv[0] == "expand" else result
        for options, expected in ((["--dry-run"], planned), ([], result)):
            code, out, _ = run(*argv, "--json", *options)
            assert (code, json.loads(out)) == (0, {**expected, "dry_run": bool(options)})


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--before", "1"),
        ("--partition", "0"),
        ("--partition", "0", "--before", "1", "--older-than", "1d"),
        ("--older-than", "soon"),
        ("--older-than", "90"),
        ("--older-than", "1d", "--partition", "2"),
    ],
)
def test_trim_rejects_other_arguments(log, arguments):
    assert run("trim", log, *arguments).code == 2
    assert run("trim", log, "--partition", "0", "--before", "0").out.startswith("partition 0 now starts at offset 0")


def test_trim_that_deletes_less_than_requested_names_the_cause(log):
    one = ("trim", log, "--partition", "0", "--before", "1")
    for argv, deleted in ((("--dry-run",), "would delete nothing: "), ((), "deleted nothing: ")):
        code, out, _ = run(*one, *argv)
        assert (code, deleted in out, "only whole chunks" in out) == (0, True, True)
    end = ("trim", log, "--partition", "0", "--before", "3")
    assert "would delete only offsets below 2: " in run(*end, "--dry-run").out
    with open_log(log) as opened:
        assert opened.bounds(0).start_offset == 0, "a dry run deletes nothing"
    assert "deleted only offsets below 2: " in run(*end).out
    assert "deleted nothing: the partition starts at offset 2" in run(*one).out


@pytest.mark.parametrize("missing", [True, False])
def test_trim_removes_a_damaged_chunk(log, missing):
    with open_log(log) as opened:
        writer = JobWriter(opened, opened.record_plan(plan_of(opened, "load-2")))
        for value in "efghij":  # the hint names the first chunk, at offset 3
            writer.must_append(value)
    damaged = Path(log) / f"partition=00000/{5:020d}.parquet"
    if missing:
        damaged.unlink()
    else:
        damaged.write_bytes(b"torn")
    assert run("offsets", log).code == 6
    trim = ("trim", log, "--partition", "0", "--before", "7")
    assert "partition 0 would start at offset 7" in run(*trim, "--dry-run").out
    assert run(*trim) == (0, "partition 0 now starts at offset 7 and ends at 9\n", "")
    assert cells(run("offsets", log).out)[0] == ["0", "7", "9", "2"]


def test_end_of_input_does_not_confirm_an_abort(monkeypatch):
    def closed(_):
        raise EOFError

    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", closed)
    with pytest.raises(UsageError, match="not confirmed"):
        _confirm("Abort?")


def test_dry_runs_change_nothing(log):
    with open_log(log) as opened:
        plan = pin_plan(opened, "whole-1", ExpectedOffsets("end"), whole=True)
        JobWriter(opened, plan, 1).must_append("a", "b")
    before = {path: path.read_bytes() for path in Path(log).rglob("*") if path.is_file()}
    for argv, message in (
        (("abort", "whole-1", log), "would be aborted"),
        (("forget", "load-1", log, "--force"), "would forget job load-1: its 4 rows"),
        (("expand", log, "--partitions", "4"), "flights would have 4 partitions"),
        (("trim", log, "--partition", "0", "--before", "2"), "partition 0 would start at offset 2"),
    ):
        code, out, _ = run(*argv, "--dry-run")
        assert (code, message in out) == (0, True), argv
    assert {path: path.read_bytes() for path in Path(log).rglob("*") if path.is_file()} == before
    for argv, message in (
        (("abort", "load-1", log), "has no load lock"),
        (("forget", "load-1", log), "is not complete"),
        (("expand", log, "--partitions", "2"), "cannot be expanded to 2"),
    ):
        code, _, err = run(*argv, "--dry-run")
        assert (code, message in err) == (2, True), argv


def test_help_loads_no_library_of_the_log():
    program = (
        "import contextlib, sys\nfrom spark_cas import cli\n"
        "with contextlib.suppress(SystemExit):\n    cli.main(['read', '--help'])\n"
        "sys.exit(not {'pyspark', 'pyarrow', 'obstore', 'rich'}.isdisjoint(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode == 0


def test_options_may_precede_the_log(log):
    assert run("read", "--partition", "1", log).out.startswith("1\t0\t")


@pytest.mark.parametrize(
    "argv",
    [
        ["read", "log", "--log-options=kafka.sasl.password=hunter2"],
        ["read", "log", "kafka.sasl.password=hunter2"],
        ["read", "log", "--json=hunter2"],
        ["read", "log", "--log-options=kafka.sasl.password=hunter2\n'hunter2"],
        ["read", "log", "--log-options=a", "--log-options=ahunter2", "kafka.sasl.password=ah"],
        ["--log-option", "kafka.sasl.password=hunter2 too", "read", "log"],
        ["load", "--log-options", "kafka.sasl.password=hunter2"],
    ],
)
def test_usage_error_contains_no_option_value(argv):
    code, out, error = run(*argv)
    assert code == 2
    assert "hunter2" not in out + error


def test_job_name_may_begin_with_a_dash(log):
    code, _, error = run("abort", "--", "-j", log)
    assert code == 2
    assert "job '-j' has no load lock" in error


def test_version():
    code, out, _ = run("--version")
    assert (code, out.split()[0]) == (0, "spark-cas")


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["offsets"], 2, "--bootstrap-servers with --topic"),
        (["offsets", "log", "--bootstrap-servers", "a:9092", "--topic", "t"], 2, "only one of the two"),
        (["offsets", "--bootstrap-servers", "a:9092"], 2, "require each other"),
        (["offsets", "log", "--topic", "t"], 2, "require each other"),
        (["offsets", "--bootstrap-servers", "me:hunter2@a:9092", "--topic", "t"], 2, "[OPTION]"),
        (["offset", "log"], 2, "invalid choice: 'offset'"),
        (["offsets", "ftp://host/log"], 2, "[OPTION]"),
        (["offsets", "log", "--log-option", "store.aws_region"], 2, "NAME=VALUE"),
        (["offsets", "log", "--log-option", "Path=other"], 2, "--log-option Path"),
        (["offsets", "log", "--log-option", "kafka.acks=hunter2"], 2, "kafka.acks is for topics"),
        (["load", "--input", "a.csv"], 2, "--log"),
        (["load", "--input", "s3://[a/b.csv", "--value-json", "--log", "log"], 2, "--format"),
        (["describe", "s3://[x/y"], 2, "[OPTION]"),
        (["describe", "~nosuchuser/log"], 2, "[OPTION]"),
        (["read", "log", "--limit", "99999999999999999999"], 2, "--limit"),
        (["tail", "log", "-n", "99999999999999999999"], 2, "-n"),
    ],
)
def test_a_wrong_call_exits_with_2(argv, code, said):
    found, _, told = run(*argv)
    assert found == code
    assert said in told
    assert "hunter2" not in told


def test_help_has_the_exit_codes():
    assert "exit codes: 0 done; 1 failed, run it again" in " ".join(run("--help").out.split())


def test_missing_log_is_an_error_that_no_retry_fixes(tmp_path):
    code, _, told = run("offsets", str(tmp_path / "nowhere"))
    assert code == 6
    assert told.startswith("error: [LOG_NOT_FOUND]")
    assert told.count(f"{tmp_path}/nowhere") == 1
    assert len(told.splitlines()) == 1


def test_a_table_is_not_cut_on_a_screen_of_80_columns(capsys):
    columns = ("job", "partition", "rows", "first offset", "end offset", "chunks", "complete", "newest chunk")
    row = ("flights-2013-corrected-once-more", 12, 336_776, 123_456, 460_232, 12, "yes", "2026-11-22 16:55:48")
    Console(width=80).print(printed_table(columns, [row]))
    head, *lines = [line for line in capsys.readouterr().out.splitlines() if line[0] in "┃│"][1:]
    assert re.findall(r"\w+", head) == [
        "job",
        "partition",
        "rows",
        "offset",
        "offset",
        "chunks",
        "complete",
        "newest",
        "chunk",
    ]
    printed = zip(*([cell.strip() for cell in line.strip("│").split("│")] for line in lines), strict=True)
    found = ["".join(column) for column in printed]
    assert found == [f"{cell:,}" if isinstance(cell, int) else cell.replace(" ", "") for cell in row]


def test_load_shows_the_help_of_the_bulk_load():
    code, out, _ = run("load", "--help")
    assert code == 0
    assert "usage: spark-cas load" in out
    assert "--expected-offsets" in out


def test_describe(log):
    shown = run("describe", log)
    assert shown.code == 0
    with open_log(log) as opened:
        assert f"flights: 2 partitions, layout epoch 0, log id {opened.layout().log_id}" in shown.out
    partitions, (job,) = cells(shown.out)[:2], cells(shown.out)[2:]
    assert partitions == [["0", "0", "3", "3"], ["1", "0", "1", "1"]]
    assert job[:3] == ["load-1", "incomplete", "4"]


def test_a_load_that_is_undecided_is_shown_and_can_be_aborted(log):
    with open_log(log) as opened:
        plan = pin_plan(opened, "whole-1", ExpectedOffsets("end"), whole=True)
        JobWriter(opened, plan, 1).must_append("a", "b")
    assert ["whole-1", "undecided"] in [row[:2] for row in cells(run("describe", log).out)]
    ended = run("abort", "whole-1", log)
    assert "job whole-1 had undecided rows" in ended.out
    assert ["whole-1", "incomplete"] in [row[:2] for row in cells(run("describe", log).out)]
    again = run("abort", "whole-1", log)
    assert (again.code, "has no load lock and no undecided rows" in again.err) == (2, True)


WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = None
from spark_cas import cli
sys.exit(cli.main())
"""
"""The program in a process that cannot import pyspark."""


def test_a_complete_job_is_found_without_spark(tmp_path):
    address = str(tmp_path / "flights")
    with open_log(address) as opened:
        assert isinstance(opened, ObjectLog)
        opened.create(1)
        plan = opened.record_plan(plan_of(opened, "load-1"))
        writer = JobWriter(opened, plan)
        writer.append(table_of(["a"]), complete=True)
        complete(opened, plan, writer)
    found = load_without_spark(address, "load-1")
    assert found.returncode == 0, found.stderr
    assert '"already_complete": true' in found.stdout
    assert "was complete before" in found.stderr
    # Another job needs Spark, which this process cannot import.
    unable = load_without_spark(address, "load-2")
    assert unable.returncode == 2
    assert "[SPARK_SETUP]" in unable.stderr


def load_without_spark(log, job):
    arguments = ["load", "--input", "gone.parquet", "--value-json", "--log", log, "--job", job]
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def complete(log, plan, writer):
    from spark_cas.core.plan import PartitionResult
    from spark_cas.log.load.planning import complete_job

    complete_job(log, plan, (PartitionResult(writer.claim.progress, 0, 0),))


def test_expand_adds_partitions_and_refuses_what_adds_none(log):
    assert run("expand", log, "--partitions", "4").out == ("flights now has 4 partitions, layout epoch 1\n")
    code, _, told = run("expand", log, "--partitions", "4")
    assert code == 2
    assert "has 4 partitions, and cannot be expanded to 4" in told
    code, _, told = run("expand", f"{log}-not-there", "--partitions", "4")
    assert code == 6
    assert f"there is no log at {log}-not-there" in told


def test_the_job_that_expands_is_the_command(log):
    command = [sys.executable, str(ROOT / "jobs/expand_partitions.py"), log, "--partitions"]
    done = subprocess.run([*command, "3"], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout) == (0, "flights now has 3 partitions, layout epoch 1\n")
    again = subprocess.run([*command, "2"], capture_output=True, text=True, cwd=ROOT, check=False)
    assert again.returncode == 2
    assert "[OPTION] the log has 3 partitions" in again.stderr


def an_hour_later(monkeypatch):
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 3_700 * 10**9)


def test_forget(log, monkeypatch):
    with open_log(log) as opened:
        plan = opened.record_plan(plan_of(opened, "load-2"))
        complete_job(opened, plan, ())
    code, _, said = run("forget", "load-2", log)
    assert (code, "ran within the last hour" in said) == (2, True)
    an_hour_later(monkeypatch)
    code, said, _ = run("forget", "load-2", log)
    assert code == 0
    assert said == ("forgot job load-2: its 0 rows stay in the log, and a load of this name appends its rows again\n")
    with open_log(log) as opened:
        assert opened.jobs() == ("load-1",)


def test_forget_leaves_a_job_that_is_not_complete_unless_forced(log):
    code, _, said = run("forget", "load-1", log)
    assert (code, "'load-1' is not complete" in said, "Of its rows 4 are in the log" in said) == (2, True, True)
    code, said, _ = run("forget", "load-1", log, "--force")
    assert (code, "forgot job load-1: its 4 rows stay" in said) == (0, True)
    code, _, said = run("forget", "load-1", log)
    assert (code, "knows no job 'load-1'" in said) == (2, True)


def test_forget_by_age(log, monkeypatch):
    with open_log(log) as opened:
        for name in ("load-2", "load-3"):
            complete_job(opened, opened.record_plan(plan_of(opened, name)), ())
    an_hour_later(monkeypatch)
    assert run("forget", "--older-than", "2h", log) == (0, "", "")
    code, said, _ = run("forget", "--older-than", "1h", log)
    assert (code, [line.split(":")[0] for line in said.splitlines()]) == (
        0,
        ["forgot job load-2", "forgot job load-3"],
    )
    with open_log(log) as opened:
        assert opened.jobs() == ("load-1",)


def test_an_error_that_does_not_name_the_log_is_told_with_it(log):
    (Path(log) / "_log/layout/00000000000000000000.json").write_text("{}")
    code, _, told = run("offsets", log)
    assert code == 6
    assert told.endswith(f" The log is file://{log}.\n")
    assert told.count(log) == 1


@pytest.mark.parametrize(
    "argv",
    [[], ["job", "--older-than", "1d"], ["--older-than", "soon"], ["--older-than", "1d", "--force"]],
)
def test_forget_says_what_is_wrong_with_its_call(log, argv):
    assert run("forget", *argv, log)[0] == 2
