"""Program that verifies that a log contains exactly the rows of files."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from rich.console import Console

from spark_cas.core.input_list import InputFile
from spark_cas.core.readable import readable
from spark_cas.log.load.planning import fresh_job_name
from spark_cas.programs.errors import ExitCode, UsageError
from spark_cas.programs.input.listing import list_input
from spark_cas.programs.load_arguments import add_input, add_rows, rows_of
from spark_cas.programs.load_progress import console_for_people
from spark_cas.programs.load_request import LoadRequest
from spark_cas.programs.log_argument import add_log_arguments, log_address, options_beside
from spark_cas.programs.program import Result, StartSession, parser_of, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_cas.spark.reading.verify_log import Verification

_EPILOG = """\
Rows are compared by key and value, each with its count; with --order-by the records of each key must lie in that
order. A part of a log is compared with --log-option startingOffsets=... and endingOffsets=...

exit codes: 0 the log holds exactly these rows; 1 the comparison failed, run it again; 2 usage; 5 the log differs;
130 interrupted. The last line on stdout is the result as JSON.
"""


def parse_arguments(argv: Sequence[str], prog: str) -> argparse.Namespace:
    """Parse a command line into a namespace with a LoadRequest as ``request``. If it is invalid, exit with 2."""
    parser = parser_of(
        prog, "Prove that a log holds exactly the rows of files, or list the first differences.", _EPILOG
    )
    add_input(parser.add_argument_group("input"))
    add_rows(parser.add_argument_group("rows"))
    add_log_arguments(parser.add_argument_group("log"))
    parser.add_argument(
        "--first", type=int, default=10, metavar="N", help="how many differences to list of each kind"
    )
    given = parser.parse_args(argv)
    try:
        given.request = LoadRequest(
            **rows_of(given),
            log=log_address(given.log, given.bootstrap_servers, given.topic),
            job=fresh_job_name(),  # nothing is loaded, so the name is not used
            log_options=tuple(options_beside(given.log_option, "--log-option").items()),
        )
    except UsageError as error:
        parser.error(str(error))
    return given


def main(argv: Sequence[str], prog: str, start_session: StartSession) -> int:
    """Run the program from its command line and return the exit code."""
    given = parse_arguments(argv, prog)
    return run(lambda spark: _verify(given, spark), start_session, with_traceback=given.traceback)


def _verify(given: argparse.Namespace, spark: "SparkSession") -> tuple[ExitCode, Result]:
    from spark_cas.programs.input.session_settings import pinned_settings
    from spark_cas.programs.load_input import input_settings

    files = list_input(given.request.inputs, spark).files
    request = replace(given.request, tombstones=True)
    with pinned_settings(spark, input_settings(spark, request, files)):
        return _compared(given, spark, request, files)


def _compared(
    given: argparse.Namespace, spark: "SparkSession", request: LoadRequest, files: Sequence[InputFile]
) -> tuple[ExitCode, Result]:
    from spark_cas.programs.load_input import ordered_rows
    from spark_cas.spark.reading.verify_log import verify_log

    rows, order = ordered_rows(spark, request, files)
    order = order if request.order_by else []
    options = {**dict(given.request.log_options), "path": given.request.log}
    found = verify_log(rows, options, order_by=order, first=given.first)
    _tell(found, console_for_people())
    result = asdict(found)
    for each in result["differences"]:
        each |= {"key": readable(each["key"]), "value": readable(each["value"])}
    if found.holds:
        return ExitCode.COMPLETE, {"status": "same", **result}
    return ExitCode.DIFFERENT, {"status": "different", **result}


def _tell(found: "Verification", console: Console) -> None:
    if found.holds:
        told, style = f"the log holds exactly these {found.wanted_rows:,} rows", "green"
    else:
        told, style = f"{found.wanted_rows:,} rows are wanted, the log holds {found.found_rows:,}: ", "red"
        told += f"{found.missing:,} missing, {found.unexpected:,} unexpected"
        told += "" if found.out_of_order is None else f", {found.out_of_order:,} out of order"
    console.print(told, style=style, markup=False, highlight=False, soft_wrap=True)
    for each in found.differences:
        where = "" if each.offset is None else f" at offset {each.offset} of partition {each.partition}"
        row = f"key {readable(each.key)}, value {readable(each.value)}"
        told = f"{each.kind}{where} (wanted {each.wanted}, found {each.found}): {row}"
        console.print(told, markup=False, highlight=False, soft_wrap=True)
