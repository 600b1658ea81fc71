"""The bulk load: files go into a log exactly once; run again, it resumes, or finds that it is done."""

import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from spark_cas.core.errors import ConditionalLogError, LogNotFoundError, UnknownOutcomeError
from spark_cas.core.plan import Completion
from spark_cas.log.open import AnySpec, open_log
from spark_cas.log.protocol import Backend
from spark_cas.spark.programs.exit_codes import ExitCode, plain_error
from spark_cas.spark.programs.load_arguments import Arguments, parse_arguments
from spark_cas.spark.programs.load_progress import console_for_people, live_progress
from spark_cas.spark.programs.load_report import LoadReport, completed_report, failed_report, ledger_report
from spark_cas.spark.programs.load_request import LoadRequest
from spark_cas.spark.programs.load_watch import LedgerWatch, LoadWatch, StageWatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_cas.spark.options.parse import WriteOptions

StartSession = Callable[[], "SparkSession"]


def main(argv: Sequence[str], prog: str, start_session: Callable[[bool], "SparkSession"]) -> int:
    """Run a bulk load from its command line and return the exit code.

    ``start_session`` gives the session and is told whether to show Spark's log; it is called when Spark is
    needed: not for a complete job.
    The result is told on stderr, and as one line of JSON, the last one, on stdout. (spark-submit prints the
    stderr of Python programs on its own stdout.)
    """
    arguments = parse_arguments(argv, prog)
    console = console_for_people()
    report = _report_of(arguments, lambda: start_session(arguments.debug), console)
    if report.partitions:
        console.print(report.table())
    console.print(report.summary(), highlight=False, soft_wrap=True)
    line = report.to_json()
    code = report.exit_code if _written(line, arguments.report, console) else max(report.exit_code, ExitCode.FAILED)
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
    return code


def bulk_load(request: LoadRequest, start_session: StartSession, console: Console) -> LoadReport:
    """Load the input of a request, or find in the registry that this was done.

    Raises a ConditionalLogError as the log or `route` raised it, UsageError when input or expressions are
    wrong, and Spark's own errors.
    """
    began = time.monotonic()
    options = request.parse()
    with open_log(options.spec) as log:
        before = log.completion(request.job)
        notes = _notes(log) if before is None else ()
    for note in notes:
        console.print(f"note: {note}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    if before is None:
        rows_before = sum(each.rows for each in ledger_report(options.spec, request.job) or ())
        _write(request, options, start_session(), console, verifying=False)
        return completed_report(
            _completion(options.spec, request.job), options.spec.url, time.monotonic() - began, rows_before
        )
    if request.verify:
        _write(request, options, start_session(), console, verifying=True)
    done = completed_report(before, options.spec.url, time.monotonic() - began, before.rows)
    return replace(done, already_complete=True, verified=request.verify)


def _notes(log: Backend) -> tuple[str, ...]:
    """What weakens a promise on this log; nothing is known of one that the load makes."""
    try:
        return log.preflight().notes
    except LogNotFoundError:
        return ()


def _written(line: str, file: str | None, console: Console) -> bool:
    try:
        if file is not None:
            Path(file).write_text(line + "\n", encoding="utf-8")
    except OSError as error:
        console.print(f"error: the report was not written: {error}", style="red", markup=False, soft_wrap=True)
        return False
    return True


def _report_of(arguments: Arguments, start_session: StartSession, console: Console) -> LoadReport:
    """Run, and make of every end a report."""
    request = arguments.request
    if arguments.job_is_fresh:
        console.print(
            f"no --job was given: this load is job {request.job!r}, and a re-run will not be recognised unless "
            f"it names that job",
            style="yellow",
            soft_wrap=True,
        )
    began = time.monotonic()
    try:
        return bulk_load(request, start_session, console)
    except KeyboardInterrupt as interrupt:
        console.print("interrupted: the same command goes on from here", style="yellow", soft_wrap=True)
        return _failed(interrupt, request, time.monotonic() - began)
    except Exception as error:  # noqa: BLE001 - whatever it was, the caller reads it in the report
        if arguments.debug:
            traceback.print_exc()
        plain = plain_error(error)
        console.print(f"error: {plain}", style="red", markup=False, highlight=False, soft_wrap=True)
        return _failed(plain, request, time.monotonic() - began)


def _failed(error: BaseException, request: LoadRequest, seconds: float) -> LoadReport:
    try:
        spec = request.parse().spec
    except ConditionalLogError:
        # The arguments do not even name a log; and what they name in its place may hold a password.
        return failed_report(error, request.job, "", seconds, ())
    return failed_report(error, request.job, spec.url, seconds, ledger_report(spec, request.job))


def _write(
    request: LoadRequest, options: "WriteOptions", spark: "SparkSession", console: Console, *, verifying: bool
) -> None:
    # Here and not above: a complete job is found without loading pyspark.
    from spark_cas.spark.programs.load_input import routed_input
    from spark_cas.spark.source import ConditionalLogSource

    # Spark finds it by itself only where the first python3 on its PATH has this package.
    spark.dataSource.register(ConditionalLogSource)
    routed = routed_input(spark, request)
    watch = LoadWatch(LedgerWatch(options.spec, request.job), StageWatch(spark, request.job), verifying=verifying)
    with live_progress(console, watch.look):
        routed.write.format("conditional-log").mode("append").options(**request.write_options()).save()


def _completion(spec: AnySpec, job: str) -> Completion:
    """What the registry says now that the write has returned."""
    with open_log(spec) as log:
        completion = log.completion(job)
    if completion is None:
        raise UnknownOutcomeError(
            f"the write of job {job!r} returned, but the registry does not say that it is complete. Run "
            f"the same command again."
        )
    return completion
