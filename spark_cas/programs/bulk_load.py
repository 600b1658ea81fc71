"""Bulk load: append files to a log exactly once. A rerun resumes the load, or reports that it is complete."""

import argparse
import json
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from rich.console import Console

from spark_cas.core.errors import ConditionalLogError, ConflictError, LogError, LogNotFoundError, StorageError
from spark_cas.core.guarantee import EXACTLY_ONCE, REQUIRED
from spark_cas.core.plan import Completion
from spark_cas.core.recorded_fields import from_json
from spark_cas.log.backend import Backend
from spark_cas.log.load.planning import fresh_job_name, placement_on, recorded_partitioner
from spark_cas.log.log_lines import log_write
from spark_cas.log.open import is_named, open_log, parse_address
from spark_cas.options import report_file
from spark_cas.options.lineage import Lineage
from spark_cas.options.parse import parse_load
from spark_cas.options.request import WriteRequest
from spark_cas.options.table import ATOMIC_LOAD, ATOMIC_PARTITION, METRICS_FILE
from spark_cas.programs.arguments import Group, LoadRequest, add_input, add_log, add_rows, load_request, parser_of
from spark_cas.programs.bad_rows import DeadLetters, dead_letters_of, is_log, row_limits, write_bad_rows
from spark_cas.programs.errors import ExitCode, RowCountError, UsageError
from spark_cas.programs.input.listing import is_input
from spark_cas.programs.input.recorded_list import (
    ListedInput,
    listed_input,
    record_list,
    require_same_list,
    require_unchanged,
)
from spark_cas.programs.load_progress import LedgerWatch, LoadWatch, Sample, StageWatch, live_progress
from spark_cas.programs.load_report import (
    JobRows,
    LoadReport,
    failed_report,
    page_of,
    recorded_rows,
    rows_now,
    rows_of_same_kind,
)
from spark_cas.programs.program import (
    StartSession,
    message_console,
    print_error,
    print_line,
    print_result,
    stop_session,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EPILOG = """\
exit codes: 0 complete, by this or an earlier run; 1 failed, run it again. A retry of these fails until you fix the
cause: 2 usage; 3 rejected by a condition; 4 the input changed; 5 the job has other rows than its files; 6 the log is
missing, damaged or unsafe; 7 a right is missing. With 130 it was interrupted, and the same command resumes.
A load that is not exactly once (option idempotence) does not resume: a rerun appends all rows again.
The last line on stdout is the result as JSON.
"""
_LIMITS = ("maxRecordsPerChunk", "maxBytesPerChunk", "maxSecondsPerChunk")


def argument_parser(prog: str) -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parser = parser_of(
        prog, "Append files to a log exactly once. A rerun with the same --job resumes the load.", _EPILOG
    )
    add_input(parser.add_argument_group("input"))
    add_rows(parser.add_argument_group("rows"))
    _add_log(parser.add_argument_group("log"))
    run = parser.add_argument_group("run")
    run.add_argument(
        "--report", metavar="FILE", help="also write the result to a file: NAME.html is a page, other names are JSON"
    )
    run.add_argument(
        "--bad-rows",
        metavar="FILE|LOG",
        help="write rows that cannot be appended to a file or another log, and append the others",
    )
    run.add_argument("--verify", action="store_true", help="compare the rows of a complete job with the input")
    run.add_argument("--tombstones", action="store_true", help="allow null values, which delete their keys")
    run.add_argument("--allow-empty", action="store_true", help="complete the job if the input has no rows")
    return parser


def parse_arguments(argv: Sequence[str], prog: str) -> argparse.Namespace:
    """Parse a command line into a namespace with a LoadRequest as ``request``. If it is invalid, exit with 2."""
    parser = argument_parser(prog)
    arguments = parser.parse_args(argv)
    bad_file = None if is_log(arguments.bad_rows) else arguments.bad_rows
    files = [("--report", arguments.report), ("--bad-rows", bad_file)]
    for name, file in files:
        if file is not None and not report_file.may_be_put(file):
            parser.error(f"{name}: the file cannot be written. Name a file in an existing, writable folder.")
    paths = [Path(file).resolve() for _, file in files if file is not None]
    if len(set(paths)) < len(paths):
        parser.error("--bad-rows and --report name the same file. Name two files.")
    try:
        own = ("partitions", "atomic", "metrics", *_LIMITS, "expectedOffsets")
        arguments.request = load_request(arguments, *own)
    except UsageError as error:
        parser.error(str(error))
    for name, output in [*files, *_other_outputs(arguments)]:
        if output is not None and is_input(output, arguments.request.inputs):
            parser.error(f"{name}: the path is part of --input, which it would change. Name a path outside of it.")
    return arguments


def _other_outputs(arguments: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield the name and path of each local log, and of each file that an option of the log names."""
    for name, address in (("--log", arguments.request.log), ("--bad-rows", arguments.bad_rows)):
        if address is not None and (name == "--log" or is_log(address)):
            with suppress(ConditionalLogError):  # the run reports an invalid address
                parts = urlsplit(parse_address(address).url)
                if parts.scheme == "file":
                    yield name, unquote(parts.path)
    for name, value in arguments.request.options.items():
        scheme, _, path = value.strip().partition(":")
        if name.lower() == "report":
            yield f"option {name}", value
        elif name.lower() == "metrics" and scheme.lower() == METRICS_FILE:
            yield f"option {name}", path


def _add_log(group: Group) -> None:
    add_log(group)
    group.add_argument("--job", help="identity of this load: a rerun with the same job resumes it")
    group.add_argument("--partitions", metavar="N", help="partition count of a log that does not exist yet")
    group.add_argument(
        "--expected-offsets",
        dest="expectedOffsets",
        metavar="OFFSETS",
        help='the expected end offset of each partition: end (the default), none, or JSON such as {"0": 17}',
    )
    group.add_argument(
        "--atomic",
        choices=[ATOMIC_LOAD, ATOMIC_PARTITION],
        help="which rows become visible in one step, or are all rejected: those of the load, or of each partition",
    )
    group.add_argument("--metrics", metavar="TARGET", help="publish metrics: file:/folder/name.prom, a URL or otel")
    for name in _LIMITS:
        flag = "--" + "".join(f"-{each.lower()}" if each.isupper() else each for each in name)
        group.add_argument(flag, dest=name, metavar="N", help=f"as the option {name}")


def main(argv: Sequence[str], prog: str, start_session: StartSession) -> int:
    """Run a bulk load from its command line and return the exit code.

    The program prints the result on stderr, and as JSON in the last line of stdout. (spark-submit prints the stderr
    of Python programs on its own stdout.)

    ``start_session`` is called only if Spark is necessary, for example not for a complete job with unchanged local
    files.
    """
    arguments = parse_arguments(argv, prog)
    console = message_console()
    load = LoadRun(arguments.request, lambda: start_session(arguments.traceback), console)
    report = replace(_report_of(load, arguments, console), samples=load.samples, bad_rows=load.bad_rows)
    if report.in_log and report.in_log.partitions:
        console.print(report.table())
    print_line(console, report.summary())
    if report.bad_rows:
        print_line(console, f"warning: bad rows in {arguments.bad_rows}: {report.bad_rows:,}", "yellow")
    line = report.to_json()
    try:
        if arguments.report is not None:
            is_page = arguments.report.lower().endswith(".html")
            report_file.put(arguments.report, page_of(report) if is_page else line + "\n")
    except OSError as error:
        # The exit code is that of the load.
        print_line(console, f"error: the report was not written: {error}", "red")
    print_result(line)
    state = {ExitCode.COMPLETE: "COMPLETE", ExitCode.INTERRUPTED: "ABORT"}.get(report.exit_code, "FAIL")
    files = load.listed.files if load.listed else ()
    load.lineage.end(state, error=report.error, rows=report.appended_rows, files=files)
    return report.exit_code


def _report_of(load: "LoadRun", arguments: argparse.Namespace, console: Console) -> LoadReport:
    """Run the load, print its error, and return the report."""
    try:
        if arguments.report is not None:
            try:  # no reader may mistake the report of an earlier run for that of this run
                report_file.clear(arguments.report)
            except OSError as error:
                raise UsageError(
                    f"--report names a file that cannot be replaced: {error}. Nothing was appended."
                ) from error
        return load.run()
    except KeyboardInterrupt as interrupt:
        load.stop()
        report = load.failed(interrupt)
        rerun = "the same command resumes"
        if report.job is None:
            rerun = "appended rows stay, and the same command appends all rows again"
        print_line(console, f"interrupted: {rerun}", "yellow")
        return report
    except Exception as error:  # noqa: BLE001 - the report contains every error
        plain = print_error(error, console, with_traceback=arguments.traceback)
        report = load.failed(plain)
        if isinstance(plain, LogError) and not is_named(report.log, plain.line):
            print_line(console, f"the log of the load is {report.log}", "red")
        if isinstance(plain, ConflictError) and plain.next_offsets is not None:
            named = f"--job {load.job} " if arguments.job is None else ""
            offsets = shlex.quote(json.dumps(plain.next_offsets))
            line = f"to continue, run the same command with {named}--expected-offsets {offsets}"
            print_line(console, line, "yellow")
        return report


class LoadRun:
    """One run of a load: the state of the job before it, the write, and the report after it."""

    def __init__(self, request: LoadRequest, start_session: "Callable[[], SparkSession]", console: Console) -> None:
        """Prepare a run. It starts the session at most once, if it needs Spark."""
        self.job = fresh_job_name() if request.job is None else request.job
        """The job of the request, or a unique name."""
        self._request = request
        self._start_session = start_session
        self._console = console
        self._began = time.monotonic()
        self._started: SparkSession | None = None
        self._was_incomplete = False
        """Whether this run read that the job is not complete."""
        self._rows_before: JobRows | None = None
        """Rows of an incomplete job that were in the log before the first append; None if not known."""
        self.lineage = Lineage(self.job, self.log, lambda text: print_line(console, f"warning: {text}", "yellow"))
        self.listed: ListedInput | None = None
        """The files of the input; None if they were not listed."""
        self._footer_rows: int | None = None
        self.bad_rows: int | None = None
        """Rows that cannot be appended; None if not known."""
        self._watched: tuple[list[Sample], float] = [], 0.0
        """Rows over time since the seconds of this run at which the watch began."""

    def run(self) -> LoadReport:
        """Load the input, unless the registry shows that an earlier run completed the job.

        Raises:
            InputChangedError: if the job began with another input list
            UsageError: if the input or an expression is invalid
            RowCountError: if the log has a different number of rows than the file footers
            ConditionalLogError: if the log or `route` rejects the load or fails

        It also raises Spark's errors.
        """
        write, dead = self._write_request, self._dead_letters
        self.lineage.start()
        if self._request.job is None:
            if write.job is None:
                text = f"with idempotence={write.idempotence}, a rerun appends all rows again"
            else:
                text = f"this load is job {write.job!r}, and a rerun resumes it only with that --job"
            print_line(self._console, f"no --job was given: {text}", "yellow")
        with open_log(write.spec) as log:
            rows = None if write.job is None else rows_of_same_kind(log, write, write.job)
            notes = _preflight_notes(log, write) if rows is None else ()
            if dead is not None and (rows is None or self._request.verify):
                dead.require_usable(log)
        for note in notes:
            print_line(self._console, f"note: {note}", "yellow")
        return self._load() if rows is None else self._confirm(rows)

    def stop(self) -> None:
        """Stop the session, because its workers could append rows after the report."""
        if self._started is not None:
            stop_session(self._started)

    def failed(self, error: BaseException) -> LoadReport:
        """Return the report of this run after an error."""
        started = self._started is not None
        if not self.log:
            # The arguments do not name a log. The value given as address may contain a password, so omit it.
            return failed_report(error, self.job, "", self._seconds, JobRows(), started=started)
        write = self._write_request
        # If the log was unavailable before the first append, do not wait for it again.
        is_away = not self._was_incomplete and isinstance(error, StorageError)
        rows = None if write.job is None or is_away else rows_now(write.spec, write.job)
        return failed_report(
            error,
            write.job,
            write.spec.url,
            self._seconds,
            rows,
            incomplete_before=self._was_incomplete,
            before=self._rows_before if self._was_incomplete else rows,
            started=started,
        )

    @property
    def log(self) -> str:
        """Address of the log, without settings; empty if the arguments name no valid log."""
        try:
            return self._write_request.spec.url
        except ConditionalLogError:
            return ""

    @property
    def samples(self) -> tuple[Sample, ...]:
        """Rows over time."""
        samples, start = self._watched
        return tuple(replace(each, seconds=each.seconds + start) for each in samples)

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    @cached_property
    def _write_request(self) -> WriteRequest:
        """The request of the write. Raises OptionError.

        If the caller named no job and the write may have no plan, it names no job. Then no check that the job is new
        is necessary.
        """
        named = {} if self._request.job is None else {"job": self._request.job}
        write = parse_load({**self._request.options, **named})
        return write if named or write.idempotence != REQUIRED else replace(write, job=self.job)

    @cached_property
    def _dead_letters(self) -> DeadLetters | None:
        """The log for bad rows; None without one. Raises ConditionalLogError."""
        return dead_letters_of(self._request.bad_rows, self._write_request, self.job)

    def _session(self) -> "SparkSession":
        if self._started is None:
            self._started = self._start_session()
        return self._started

    def _resolve_schema(self) -> None:
        """Add the version to the subject of ``--value-avro``, so that the input list has the version of the rows."""
        if self._request.value_avro is not None:
            from spark_cas.log.schema_registry import SchemaRegistry  # needs packages of an extra

            exact = SchemaRegistry(dict(self._request.registry)).with_version(self._request.value_avro)
            self._request = replace(self._request, value_avro=exact)

    def _load(self) -> LoadReport:
        """Load the input of a job that is not complete."""
        write = self._write_request
        self._rows_before = JobRows() if write.job is None else rows_now(write.spec, write.job)
        self._was_incomplete = True
        self._resolve_schema()
        self.listed = listed_input(self._request, write, self._session(), self._console)
        job, rows = self._write(self.listed, verifying=False)
        # The result of a write that is not exactly once counts only the rows of this run.
        return self._completed(job, rows, JobRows() if job is None else self._rows_before)

    def _confirm(self, rows: JobRows) -> LoadReport:
        """Compare the input with that of a complete job: the list of files, and with ``--verify`` all rows."""
        write = self._write_request
        self._resolve_schema()
        self.listed = require_same_list(self._request, write, self._session, self._console)
        if self._request.verify:
            if self.listed is None:
                self.listed = listed_input(self._request, write, self._session(), self._console)
            self._write(self.listed, verifying=True)
        elif self._dead_letters is not None:
            self.bad_rows = self._dead_letters.rows()
        report = self._completed(write.job, rows, before=rows)
        if not self._request.verify:
            # With --verify, the write has logged its line.
            log_write(report.log, report.job, rows=0, existing=rows.rows, seconds=self._seconds)
        return replace(report, already_complete=True, verified=self._request.verify)

    def _completed(self, job: str | None, rows: JobRows | None, before: JobRows | None) -> LoadReport:
        """Return the report of a complete job. ``before`` are its rows in the log when this run began."""
        appended = None if rows is None or before is None else rows.rows - before.rows
        totals = None if self.listed is None else self.listed.totals(self._footer_rows)
        log, code = self._write_request.spec.url, ExitCode.COMPLETE
        return LoadReport(job, log, code, self._seconds, rows, appended_rows=appended, input=totals)

    def _write(self, source: ListedInput, *, verifying: bool) -> tuple[str | None, JobRows | None]:
        """Write the rows and wait for the result.

        Returns:
            the job, and its rows in the log; None if the write has no job, and if only the driver has the result

        Raises:
            RowCountError: if the log has a different number of rows than the file footers
        """
        # Import here: reading a complete job does not require pyspark.
        from pyspark.sql.utils import is_remote

        from spark_cas.programs.load_input import (
            append_bad_rows,
            has_rows,
            input_settings,
            ordered_rows,
            pinned_settings,
            routed_rows,
            rows_in_footers,
        )
        from spark_cas.spark.source import ConditionalLogSource
        from spark_cas.spark.versions import register

        write, request, spark = self._write_request, self._request, self._session()
        has_result = write.idempotence == REQUIRED or write.report is not None or verifying
        if is_remote() and not has_result:
            raise UsageError(
                f"with Spark Connect, the driver runs on another machine. With idempotence={write.idempotence} it "
                f"reports the appended rows and their guarantee only in a file. Nothing was appended. Name a file on "
                f"the driver with --log-option report=FILE, or set idempotence={REQUIRED}."
            )
        # Otherwise Spark finds the data source only if the first python3 on PATH has this package.
        register(spark, ConditionalLogSource)
        with pinned_settings(spark, input_settings(spark, request, source.files)):
            limits, letters = None if request.bad_rows is None else row_limits(write), self._dead_letters
            rows, order, bad = ordered_rows(spark, request, source.files, limits)
            self._footer_rows = rows_in_footers(spark, request, source.files)
            if bad is not None and request.bad_rows is not None and letters is None:
                self.bad_rows = write_bad_rows(bad, source.files, request.bad_rows)
            has_bad = bad is not None and self.bad_rows != 0
            known = None if has_bad else self._footer_rows
            is_empty = not has_rows(spark, request, [] if has_bad else source.files, rows, known)
            if is_empty and not request.allow_empty:
                problem = "no row of the input can be appended" if has_bad else "the input has no rows"
                raise UsageError(f"{problem}. Nothing was appended. Add --allow-empty if this is right.")
            routed = routed_rows(rows, order, write, source.list.digest)
            if not verifying and write.job is not None:
                record_list(write, write.job, source.list)
            if bad is not None and letters is not None:
                is_count = verifying and letters.rows() is None  # a comparison appends nothing
                self.bad_rows = bad.count() if is_count else append_bad_rows(bad, source, letters, self.job)
            job, result = self._append(spark, routed, verifying=verifying)
            require_unchanged(source, request, spark)
        if result is None or self._footer_rows is None:
            return job, result
        if result.rows != self._footer_rows - (self.bad_rows or 0):
            raise RowCountError(
                f"the log has {result.rows} rows of the job, and the footers of its files count {self._footer_rows}"
                f"{f', of which {self.bad_rows} are bad' if self.bad_rows else ''}. "
                f"The rows stay in the log. The files changed during the load, or this is a defect of a reader: "
                f"compare the log with verify_log.py."
            )
        return job, result

    def _append(
        self, spark: "SparkSession", routed: "DataFrame", *, verifying: bool
    ) -> tuple[str | None, JobRows | None]:
        """Append routed rows, display the progress, and return the result as `_write`."""
        from pyspark.sql.utils import is_remote

        from spark_cas.spark.writing.end_markers import end_markers_of

        write = self._write_request
        options = {**self._request.options, "lineage": "false"} | ({} if write.job is None else {"job": write.job})
        ledger = None if write.job is None else LedgerWatch(write.spec, write.job)
        watch = LoadWatch(ledger, StageWatch(spark, self.job, end_markers_of(routed)), verifying=verifying)
        self._watched = watch.samples, self._seconds
        # With Spark Connect, the report is on the driver's machine.
        report = None if write.report is None or is_remote() else Path(write.report)
        with TemporaryDirectory() as folder, live_progress(self._console, watch.snapshot):
            if write.idempotence != REQUIRED and report is None and not is_remote():
                report = Path(folder) / "report.json"
                options["report"] = str(report)
            routed.write.format("conditional-log").mode("append").options(**options).save()
            completion = None if report is None else from_json(Completion, report.read_text(encoding="utf-8"))
        if completion is not None:
            if not completion.job:
                return None, JobRows(completion.partitions)
            job = write.job or completion.job
            return job, recorded_rows(write.spec, job)
        if write.job is None or not is_recorded(write):
            return None, None
        return write.job, recorded_rows(write.spec, write.job)


def _preflight_notes(log: Backend, write: WriteRequest) -> tuple[str, ...]:
    """Return the notes of the log's preflight. They are empty if the log does not exist yet.

    Raises OptionError if the load names another partitioner than the log.
    """
    try:
        log.layout_now()  # a preflight requires an existing log
        placement = placement_on(recorded_partitioner(log, write.idempotence), write.partitioner)
        return log.preflight(idempotence=write.idempotence, placement=placement).notes
    except LogNotFoundError:
        return ()


def is_recorded(write: WriteRequest) -> bool:
    """Return whether the registry records the result, which is so if the write is exactly once.

    Raises ConditionalLogError if `preflight` of the log fails.
    """
    if write.idempotence == REQUIRED:
        return True
    with open_log(write.spec) as log:
        return log.preflight(idempotence=write.idempotence).guarantee == EXACTLY_ONCE
