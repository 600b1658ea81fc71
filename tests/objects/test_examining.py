"""`spark-cas doctor` on a directory and on an S3 server: it finds each planted problem, and no other one."""

import json
import shlex
import socket

import pytest

from spark_cas import open_log
from spark_cas.core.finding import Problem, Severity
from spark_cas.log import clock, doctor
from spark_cas.log.objects import paths
from tests.long import full
from tests.objects.bad_day import BUSY, BadDay, proxy_to
from tests.objects.servers import S3_OPTIONS, moto
from tests.objects.versity import gateway
from tests.support.loads import TEN, run_job
from tests.support.planted_problems import (
    lock_of_ended_process,
    only,
    report_on,
    undecided_load,
    unfinished_expansion,
    unfinished_job,
)
from tests.support.programs import run_cli

HOUR_MS = 3_600_000


def arguments_of(spec):
    """Return the arguments of a command line for a store."""
    options = [
        argument for name, value in spec.store_options for argument in ("--log-option", f"store.{name}={value}")
    ]
    return [spec.url, *options]


@pytest.fixture(scope="module")
def versity():
    with gateway() as served:
        yield served


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.s3), *full("versity")])
def place(request, tmp_path):
    """The arguments of a new log with one complete job, and a function that opens it."""
    if request.param == "directory":
        arguments, opened = [str(tmp_path / "flights")], lambda: open_log(str(tmp_path / "flights"))
    else:
        spec = request.getfixturevalue(request.param).spec()
        arguments, opened = arguments_of(spec), lambda: open_log(spec)
    with opened() as log:
        log.create(2)
        run_job(log, "done", TEN)
    return arguments, opened


@pytest.fixture
def later(monkeypatch):
    """A function that moves the clock of this process forward."""
    now_ms = clock.now_ms

    def moved(milliseconds):
        monkeypatch.setattr(clock, "now_ms", lambda: now_ms() + milliseconds)

    return moved


def test_healthy_log_has_no_finding(place):
    arguments, _ = place
    report = report_on(*arguments)
    assert (report.code, report.status, report.problems) == (0, "ok", {})
    assert report.environment["versions"]["spark-cas"]
    assert report.environment["accelerators"] == {"quick_ack": hasattr(socket, "TCP_QUICKACK")}
    shown = run_cli("doctor", *arguments).out
    assert "no problem found" in shown
    used = [name for name, is_used in report.environment["accelerators"].items() if is_used]
    assert f"accelerators: {', '.join(used) or 'none'}" in shown.splitlines()


@pytest.mark.parametrize(
    ("plant", "problem", "code"),
    [
        (lock_of_ended_process, "LOAD_LOCK", 8),
        (unfinished_expansion, "UNFINISHED_EXPANSION", 9),
        (unfinished_job, "UNFINISHED_JOB", 8),
        (undecided_load, "UNDECIDED_LOAD", 8),
    ],
)
def test_planted_problem_is_found_alone(place, later, plant, problem, code):
    arguments, opened = place
    with opened() as log:
        plant(log)
    later(2 * HOUR_MS)
    report = report_on(*arguments)
    assert (report.code, [*report.problems]) == (code, [problem])
    finding = only(report.problems[problem])
    assert arguments[0] in finding["fix"]
    assert finding["problem"] in run_cli("doctor", *arguments).out


@pytest.mark.parametrize("plant", [lock_of_ended_process, unfinished_expansion, unfinished_job, undecided_load])
def test_the_report_changes_nothing(tmp_path, plant):
    address = str(tmp_path / "flights")
    with open_log(address) as log:
        log.create(2)
        plant(log)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    report_on(address)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("plant", "command"),
    [
        (unfinished_expansion, ["expand"]),
        (undecided_load, ["abort"]),
        (lock_of_ended_process, ["abort"]),
    ],
)
def test_the_named_command_fixes_the_problem(place, plant, command):
    """On S3, after the user replaced the placeholders of the secrets."""
    arguments, opened = place
    with opened() as log:
        plant(log)
        if plant is lock_of_ended_process:
            unfinished_job(log)
    [finding] = [each for found in report_on(*arguments).problems.values() for each in found]
    secrets = {name: S3_OPTIONS[name] for name in ("aws_access_key_id", "aws_secret_access_key")}
    assert not [value for value in secrets.values() if value in finding["fix"]]
    program, *fix = shlex.split(finding["fix"].rpartition("spark-cas ")[2])
    assert program == command[0]
    for name, value in secrets.items():
        fix = [each.replace(f"store.{name}=...", f"store.{name}={value}") for each in fix]
    assert run_cli(program, *fix).code == 0
    assert report_on(*arguments).problems == {}


def test_running_load_is_no_warning(place):
    arguments, opened = place
    with opened() as log:
        unfinished_job(log)
        undecided_load(log)
    report = report_on(*arguments)
    assert (report.code, report.urgent) == (0, {})
    assert only(report.problems["UNDECIDED_LOAD"])["severity"] == "info"


def test_damaged_chunk_is_found(tmp_path):
    address = str(tmp_path / "flights")
    with open_log(address) as log:
        log.create(2)
        run_job(log, "done", TEN)
    newest = max((tmp_path / "flights" / paths.chunk(0, 0)).parent.iterdir())
    newest.write_bytes(newest.read_bytes()[:-100])
    report = report_on(address)
    assert report.code == 9
    assert "CHUNK_DAMAGED" in {each["details"]["error"] for each in report.problems["UNREADABLE"]}


def test_damaged_job_hides_no_other_job(tmp_path):
    address = str(tmp_path / "flights")
    with open_log(address) as log:
        log.create(2)
        run_job(log, "a-damaged", TEN)
        unfinished_job(log)
    [completion] = (tmp_path / "flights").rglob("*complete.json")
    completion.write_text("{}")
    report = report_on(address)
    assert report.code == 9
    assert only(report.problems["UNREADABLE"])["details"]["error"] == "FORMAT"
    listed = run_cli("jobs", address, "--json")
    states = {each["job"]: each["state"] for each in map(json.loads, listed.out.splitlines())}
    assert (listed.code, states) == (6, {"a-damaged": "unreadable", "killed": "incomplete"})
    described = run_cli("describe", address, "--json")
    assert described.code == 6
    assert {each["job"]: each["state"] for each in json.loads(described.out)["jobs"]} == states
    shown = run_cli("describe", address).out
    assert "flights: 2 partitions" in shown
    assert "unreadable" in shown


def test_damaged_plan_hides_no_other_job(tmp_path, later, caplog):
    address = str(tmp_path / "flights")
    with open_log(address) as log:
        log.create(2)
        for job in ("done", "half", "part", "part.layout-1"):
            run_job(log, job, TEN)
        unfinished_job(log)
    jobs = tmp_path / "flights" / paths.JOBS
    for job, name in (("a-plan", "plan"), ("half", "complete"), ("part.layout-1", "plan")):
        (jobs / job).mkdir(exist_ok=True)
        (jobs / job / f"{name}.json").write_text("{}")
    damaged = {"a-plan", "half", "part.layout-1"}
    expected = {"done": "complete", "killed": "incomplete", "part": "complete"} | dict.fromkeys(damaged, "unreadable")
    later(2 * HOUR_MS)
    listed = run_cli("jobs", address, "--json")
    states = {each["job"]: each["state"] for each in map(json.loads, listed.out.splitlines())}
    assert (listed.code, states) == (6, expected)
    assert [*states] == sorted(states)
    described = run_cli("describe", address, "--json")
    assert (described.code, {each["job"]: each["state"] for each in json.loads(described.out)["jobs"]}) == (6, states)
    problems = report_on(address).problems
    assert {each["meaning"].split()[1] for each in problems["UNREADABLE"]} == damaged
    assert only(problems["UNFINISHED_JOB"])["details"]["job"] == "killed"
    forgotten = run_cli("forget", "--older-than", "1h", address)
    assert (forgotten.code, forgotten.out.split(":")[0]) == (0, "forgot job done")
    skipped = [each.getMessage().split()[1] for each in caplog.records if "was skipped" in each.getMessage()]
    assert skipped == sorted(damaged | {"part"})
    with open_log(address) as log:
        assert set(log.jobs()) == damaged | {"killed", "part"}


@pytest.mark.s3
def test_store_that_fails_puts_is_an_error(s3):
    with proxy_to(s3.endpoint) as proxy:
        spec = s3.spec(aws_endpoint=proxy.endpoint, retry_timeout="1000ms")
        with open_log(spec) as log:
            log.create(2)
        with open_log(spec) as log:
            proxy.day = BadDay(BUSY, 2, "PUT", paths.PROBE)
            findings = doctor.examine(log, clock.now_ms())
        assert proxy.day.began.is_set()
    problems = {each.problem for each in findings}
    assert Problem.STORE_UNPROBED not in problems
    assert (findings[0].problem, findings[0].severity) == (Problem.UNREADABLE, Severity.ERROR)


@pytest.mark.s3
def test_store_that_ignores_conditions_is_found(tmp_path):
    flag = tmp_path / "ignore"
    with moto(IGNORE_CONDITIONS=str(flag)) as served:
        spec = served.spec()
        with open_log(spec) as log:
            log.create(2)
        assert report_on(*arguments_of(spec)).problems == {}
        flag.touch()
        report = report_on(*arguments_of(spec))
    assert (report.code, [*report.problems]) == (9, ["STORE_UNSAFE"])


def test_log_without_probe_object_is_not_probed(tmp_path):
    address = tmp_path / "flights"
    with open_log(str(address)) as log:
        log.create(2)
    (address / paths.PROBE).unlink()
    report = report_on(str(address))
    assert (report.code, [*report.problems]) == (0, ["STORE_UNPROBED"])
    assert not (address / paths.PROBE).exists()
    assert str(address) in only(report.problems["STORE_UNPROBED"])["fix"]
    with open_log(str(address)) as log:
        log.preflight()
    assert report_on(str(address)).problems == {}


def test_missing_log_is_an_error(tmp_path):
    assert run_cli("doctor", str(tmp_path / "none")).code == 6


@pytest.mark.parametrize(
    "arguments",
    [
        ["--yes"],
        ["--producer-id", "1"],
        ["--abort", "--producer-id", "1"],
        ["--abort", "--json"],
        ["--abort", "--producer-id", "1", "--producer-epoch", "0", "--partition", "0", "--yes"],
    ],
)
def test_an_incomplete_or_unmatched_abort_is_a_usage_error(place, arguments):
    assert run_cli("doctor", *place[0], *arguments).code == 2


def test_findings_are_sorted_by_severity(tmp_path, later):
    address = str(tmp_path / "flights")
    with open_log(address) as log:
        log.create(2)
        unfinished_job(log)
        lock_of_ended_process(log)
        unfinished_expansion(log)
        later(2 * HOUR_MS)
        severities = [each.severity for each in doctor.examine(log, clock.now_ms())]
    assert severities == [Severity.ERROR, Severity.WARNING, Severity.WARNING]


def test_jobs_are_listed_with_state_rows_times_and_offsets(place):
    arguments, opened = place
    with opened() as log:
        unfinished_job(log)
        undecided_load(log)
        lock_of_ended_process(log)
    lines = [json.loads(line) for line in run_cli("jobs", *arguments, "--json").out.splitlines()]
    assert [(each["job"], each["state"], each["rows"]) for each in lines] == [
        ("done", "complete", 10),
        ("killed", "incomplete", 2),
        ("whole", "undecided", 0),
    ]
    done, killed, _ = lines
    assert done["partitions"] == [{"partition": 0, "rows": 10, "base_offset": 0, "end_offset": 10}]
    assert done["planned_at_ms"] <= done["newest_chunk_ms"] <= done["completed_at_ms"]
    assert killed["completed_at_ms"] is None
    shown = run_cli("jobs", *arguments).out
    assert "done" in shown
    assert "0: 10 to 12" in shown
