"""Bulk load: append files to a log exactly once. A rerun resumes the load, or reports that it is complete."""

import json
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.console import Console

from spark_cas.core.errors import (
    ConditionalLogError,
    ConflictError,
    LogError,
    LogNotFoundError,
    StorageError,
    UnknownOutcomeError,
)
from spark_cas.core.guarantee import EXACTLY_ONCE, REQUIRED
from spark_cas.core.plan_json import completion_from_json
from spark_cas.log.backend import Backend
from spark_cas.log.load.placing import placement_on, recorded_partitioner
from spark_cas.log.load.planning import require_same_kind
from spark_cas.log.open import AnySpec, is_named, open_log
from spark_cas.options import report_file
from spark_cas.programs.exit_codes import ExitCode, RowCountError, UsageError
from spark_cas.programs.input.recorded_list import FoundInput, listed_input, record_list, require_same_list
from spark_cas.programs.load_arguments import Arguments, parse_arguments
from spark_cas.programs.load_progress import console_for_people, live_progress
from spark_cas.programs.load_report import (
    Held,
    LoadReport,
    completed_report,
    failed_report,
    held_now,
    held_when_done,
)
from spark_cas.programs.load_request import LoadRequest
from spark_cas.programs.load_watch import LedgerWatch, LoadWatch, StageWatch
from spark_cas.programs.program import tell, tell_error
from spark_cas.programs.session import stop_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_cas.options.parse import WriteOptions

StartSession = Callable[[], "SparkSession"]


def main(argv: Sequence[str], prog: str, start_session: Callable[[bool], "SparkSession"]) -> int:
    """Run a bulk load from its command line and return the exit code.

    The program prints the result on stderr, and as JSON in the last line of stdout. (spark-submit prints the stderr
    of Python programs on its own stdout.)

    Args:
        argv: the arguments
        prog: the name of the program for help and usage errors
        start_session: returns the session; its argument is whether to show Spark's log. It is called only if Spark is
          necessary, for example not for a complete job with unchanged local files.
    """
    arguments = parse_arguments(argv, prog)
    console = console_for_people()
    report = _report_of(arguments, lambda: start_session(arguments.with_traceback), console)
    if report.partitions:
        console.print(report.table())
    tell(console, report.summary())
    line = report.to_json()
    _put_report(line, arguments.report, console)
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
    return report.exit_code


def bulk_load(
    request: LoadRequest,
    start_session: StartSession,
    console: Console,
    *,
    on_incomplete: Callable[[Held | None], None] = lambda _: None,
) -> LoadReport:
    """Load the input of a request, unless the registry shows that an earlier run completed the job.

    Args:
        request: the load
        start_session: returns the session
        console: the console for messages and progress
        on_incomplete: called before the first append if the job is not complete, with the rows of the job in the log;
          None if they are not known

    Raises:
        InputChangedError: if the job began with another input list
        UsageError: if the input or an expression is invalid
        RowCountError: if the log has a different number of rows than the file footers
        ConditionalLogError: if the log or `route` rejects the load or fails

    It also raises Spark's errors.
    """
    began = time.monotonic()
    options = request.parse()
    if request.job_is_fresh:
        console.print(_not_named(options), style="yellow", soft_wrap=True)
    with open_log(options.spec) as log:
        before = None if options.job is None else _held_before(log, options, options.job)
        notes = _notes(log, options) if before is None else ()
    for note in notes:
        console.print(f"note: {note}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    if before is None:
        there = Held(()) if options.job is None else held_now(options.spec, options.job)
        on_incomplete(there)
        spark = start_session()
        found = listed_input(request, options, spark, console)
        done = _write(request, options, spark, console, found, verifying=False)
        seconds = time.monotonic() - began
        if done is None:
            return LoadReport(None, options.spec.url, ExitCode.COMPLETE, seconds, partitions=None, input=found.totals)
        job, held, rows = done
        rows_before = None if there is None else there.rows
        if job is None:
            rows_before = 0  # the result of a write that is not exactly once counts only the rows of this run
        report = completed_report(job, held, options.spec.url, seconds, rows_before)
        return replace(report, input=replace(found.totals, rows=rows))
    done = None
    again = require_same_list(request, options, start_session, console)
    if request.verify:
        spark = start_session()
        again = listed_input(request, options, spark, console) if again is None else again
        done = _write(request, options, spark, console, again, verifying=True)
    report = completed_report(options.job, before, options.spec.url, time.monotonic() - began, before.rows)
    totals = None if again is None else replace(again.totals, rows=done[-1] if done else None)
    return replace(report, already_complete=True, verified=request.verify, input=totals)


def _held_before(log: Backend, options: "WriteOptions", job: str) -> Held | None:
    """Return the rows of a job that was complete before this run; None if it was not complete.

    Raises:
        JobMismatchError: if the job was planned as another kind of write
        TruncatedError: if the job was planned on another log
    """
    held = held_when_done(log, job)
    first = None if held is None else log.plan(job)
    if first is not None:
        require_same_kind(
            log,
            first,
            stream=options.batch_id is not None,
            compare=options.compare,
            round_of=options.round_of,
            whole=options.whole,
            partitioner=options.partitioner,
        )
    return held


def _not_named(options: "WriteOptions") -> str:
    if options.job is None:
        return f"no --job was given, and idempotence is {options.idempotence}: a re-run is another load"
    return (
        f"no --job was given: this load is job {options.job!r}, and a re-run will not be recognised unless it names "
        f"that job"
    )


def _notes(log: Backend, options: "WriteOptions") -> tuple[str, ...]:
    """Return the notes of the log's preflight. They are empty if the log does not exist yet.

    Raises:
        OptionError: if the load names another partitioner than the log
    """
    try:
        log.layout_now()  # a preflight requires an existing log
        placement = placement_on(recorded_partitioner(log, options.idempotence), options.partitioner)
        return log.preflight(idempotence=options.idempotence, placement=placement).notes
    except LogNotFoundError:
        return ()


def _remove_earlier_report(file: str | None) -> None:
    """Remove the report of an earlier run, so that no reader takes it for the report of this run.

    Raises:
        UsageError: if the file cannot be replaced
    """
    try:
        if file is not None:
            report_file.clear(file)
    except OSError as error:
        raise UsageError(f"--report names a file that cannot be replaced: {error}. Nothing was appended.") from error


def _put_report(line: str, file: str | None, console: Console) -> None:
    """Write the report to a file. If that fails, print an error and keep the result of the load."""
    try:
        if file is not None:
            report_file.put(file, line + "\n")
    except OSError as error:
        tell(console, f"error: the report was not written: {error}", "red")


def _report_of(arguments: Arguments, start_session: StartSession, console: Console) -> LoadReport:
    """Run the load and return a report for success and failure."""
    request = arguments.request
    began = time.monotonic()
    sessions: list[SparkSession] = []
    before: list[Held | None] = []

    def remembered() -> "SparkSession":
        sessions.append(start_session())
        return sessions[-1]

    try:
        _remove_earlier_report(arguments.report)
        return bulk_load(request, remembered, console, on_incomplete=before.append)
    except KeyboardInterrupt as interrupt:
        # Workers of a running session could append rows after the report is made.
        for spark in sessions:
            stop_session(spark)
        report = _failed(interrupt, request, time.monotonic() - began, before, started=bool(sessions))
        left = "the same command resumes"
        if report.job is None:
            left = "appended rows stay, and the same command appends all rows again"
        tell(console, f"interrupted: {left}", "yellow")
        return report
    except Exception as error:  # noqa: BLE001 - the report contains every error
        plain = tell_error(error, console, with_traceback=arguments.with_traceback)
        report = _failed(plain, request, time.monotonic() - began, before, started=bool(sessions))
        if isinstance(plain, LogError) and not is_named(report.log, plain.message):
            tell(console, f"the log is {report.log}", "red")
        if isinstance(plain, ConflictError) and plain.next_offsets is not None:
            named = f"--job {request.job} " if request.job_is_fresh else ""
            offsets = shlex.quote(json.dumps(plain.next_offsets))
            line = f"to go on, add to the same command: {named}--expected-offsets {offsets}"
            tell(console, line, "yellow")
        return report


def _failed(
    error: BaseException,
    request: LoadRequest,
    seconds: float,
    before: Sequence[Held | None],
    *,
    started: bool,
) -> LoadReport:
    """Return the report of a failed load.

    ``before`` is empty if it failed before its first append. ``started`` is whether it started Spark.
    """
    try:
        options = request.parse()
    except ConditionalLogError:
        # The arguments do not name a log. The value given as address may contain a password, so omit it.
        return failed_report(error, request.job, "", seconds, Held(()), started=started)
    # If the log was unavailable before the first append, do not wait for it again.
    is_away = not before and isinstance(error, StorageError)
    found = None if options.job is None or is_away else held_now(options.spec, options.job)
    there = before[0] if before else found
    incomplete = bool(before)
    return failed_report(
        error,
        options.job,
        options.spec.url,
        seconds,
        found,
        incomplete_before=incomplete,
        before=there,
        started=started,
    )


def _write(
    request: LoadRequest,
    options: "WriteOptions",
    spark: "SparkSession",
    console: Console,
    found: FoundInput,
    *,
    verifying: bool,
) -> tuple[str | None, Held, int | None] | None:
    """Write the rows and wait for the result.

    Returns:
        the job, its rows in the log, and the rows by file footers; None if only the driver has the result

    Raises:
        RowCountError: if the log has a different number of rows than the file footers
    """
    # Import here: a complete job is found without pyspark.
    from pyspark.sql.utils import is_remote

    from spark_cas.programs.input.session_settings import pinned_settings
    from spark_cas.programs.load_input import (
        has_rows,
        input_settings,
        ordered_rows,
        routed_rows,
        rows_in_footers,
    )
    from spark_cas.spark.source import ConditionalLogSource
    from spark_cas.spark.versions import register
    from spark_cas.spark.writing.end_markers import end_markers_of

    report = None if options.report is None else Path(options.report)
    is_told = options.idempotence == REQUIRED or report is not None or verifying
    if is_remote() and not is_told:
        raise UsageError(
            f"with Spark Connect, the driver runs on another machine. With idempotence={options.idempotence} it "
            f"reports the appended rows and their guarantee only in a file. Nothing was appended. Name a file on the "
            f"driver with --log-option report=FILE, or set idempotence={REQUIRED}."
        )
    # Otherwise Spark finds the data source only if the first python3 on PATH has this package.
    register(spark, ConditionalLogSource)
    with pinned_settings(spark, input_settings(spark, request, found.files)):
        rows, order = ordered_rows(spark, request, found.files)
        expected = rows_in_footers(spark, request, found.files)
        if not request.allow_empty and not has_rows(spark, request, found.files, rows, expected):
            raise UsageError("the input has no rows. Nothing was appended. Add --allow-empty if this is right.")
        routed = routed_rows(rows, order, request, found.list.digest)
        if not verifying and options.job is not None:
            record_list(options, options.job, found.list)
        ledger = None if options.job is None else LedgerWatch(options.spec, options.job)
        stages = StageWatch(spark, request.job, end_markers_of(routed))
        watch = LoadWatch(ledger, stages, verifying=verifying)
        given = request.write_options()
        with TemporaryDirectory() as folder, live_progress(console, watch.look):
            if options.idempotence != REQUIRED and report is None and not is_remote():
                report = Path(folder) / "report.json"
                given["report"] = str(report)
            routed.write.format("conditional-log").mode("append").options(**given).save()
            # With Spark Connect, the report is on the driver's machine.
            if report is not None and not is_remote():
                completion = completion_from_json(report.read_text(encoding="utf-8"))
                job = (options.job or completion.job) if completion.job else None
                held = Held.of(completion.partitions, None) if job is None else _done(options.spec, job)
                _require_rows(held, expected)
                return job, held, expected
        if options.job is None or not is_recorded(options):
            return None
        held = _done(options.spec, options.job)
        _require_rows(held, expected)
        return options.job, held, expected


def _require_rows(held: Held, expected: int | None) -> None:
    if expected is not None and held.rows != expected:
        raise RowCountError(
            f"the log has {held.rows} rows of the job, and the footers of its files count {expected}. The rows stay "
            f"in the log. The files changed during the load, or this is a defect of a reader: compare the log with "
            f"verify_log.py."
        )


def is_recorded(options: "WriteOptions") -> bool:
    """Return whether the registry records the result, which is so if the write is exactly once.

    Raises:
        ConditionalLogError: if `preflight` of the log fails
    """
    if options.idempotence == REQUIRED:
        return True
    with open_log(options.spec) as log:
        return log.preflight(idempotence=options.idempotence).guarantee == EXACTLY_ONCE


def _done(spec: AnySpec, job: str) -> Held:
    """Return the result that the registry recorded for a write. Raises UnknownOutcomeError if there is none."""
    with open_log(spec) as log:
        done = held_when_done(log, job)
    if done is None:
        raise UnknownOutcomeError(
            f"the write of job {job!r} returned, but the registry has no record that the job is complete. Run "
            f"the same command again."
        )
    return done
