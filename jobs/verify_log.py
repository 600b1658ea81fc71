"""spark-submit jobs/verify_log.py: prove that a log has exactly the rows of files. See --help."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from rich.console import Console

from spark_cas.core.records import readable
from spark_cas.programs.arguments import add_input, add_log, add_rows, load_request, parser_of
from spark_cas.programs.errors import ExitCode, UsageError
from spark_cas.programs.input.listing import list_input
from spark_cas.programs.program import Result, StartSession, message_console, print_line, run, submitted_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_cas.spark.reading.verify_log import Verification

_EPILOG = """\
The program compares rows by key and value, each with its count. With --order-by it also checks the order of the
records of each key. To compare a part of a log, add --log-option startingOffsets=... and endingOffsets=...

exit codes: 0 the log has exactly these rows; 1 the comparison failed, run it again; 2 usage; 5 the log differs;
6 the log is missing or damaged; 7 a right is missing; 130 interrupted. The last line on stdout is the result as JSON.
"""


def parse_arguments(argv: Sequence[str], prog: str) -> argparse.Namespace:
    """Parse a command line into a namespace with a LoadRequest as ``request``. If it is invalid, exit with 2."""
    parser = parser_of(
        prog, "Verify that a log has exactly the rows of files, or list the first differences.", _EPILOG
    )
    add_input(parser.add_argument_group("input"))
    add_rows(parser.add_argument_group("rows"))
    add_log(parser.add_argument_group("log"))
    parser.add_argument(
        "--first", type=int, default=10, metavar="N", help="the number of differences to list of each kind"
    )
    arguments = parser.parse_args(argv)
    try:
        arguments.request = replace(load_request(arguments), tombstones=True)
    except UsageError as error:
        parser.error(str(error))
    return arguments


def main(argv: Sequence[str], prog: str, start_session: StartSession) -> int:
    """Run the program from its command line and return the exit code."""
    return run(_verify, parse_arguments(argv, prog), start_session)


def _verify(arguments: argparse.Namespace, spark: "SparkSession") -> tuple[ExitCode, Result]:
    from spark_cas.programs.load_input import input_settings, ordered_rows, pinned_settings
    from spark_cas.spark.reading.verify_log import verify_log

    request = arguments.request
    files = list_input(request.inputs, spark).files
    with pinned_settings(spark, input_settings(spark, request, files)):
        rows, order, _ = ordered_rows(spark, request, files)
        order = order if request.order_by else []
        verification = verify_log(rows, request.options, order_by=order, first=arguments.first)
    _print(verification, message_console())
    result = asdict(verification)
    for each in result["differences"]:
        each |= {"key": readable(each["key"]), "value": readable(each["value"])}
    if verification.holds:
        return ExitCode.COMPLETE, {"status": "same", **result}
    return ExitCode.DIFFERENT, {"status": "different", **result}


def _print(result: "Verification", console: Console) -> None:
    if result.holds:
        print_line(console, f"the log has exactly these {result.expected_rows:,} rows", "green")
    else:
        order = "" if result.out_of_order is None else f", {result.out_of_order:,} out of order"
        rows = f"the log has {result.actual_rows:,} rows, and the input {result.expected_rows:,}"
        print_line(console, f"{rows}: {result.missing:,} missing, {result.unexpected:,} unexpected{order}", "red")
    for each in result.differences:
        place = "" if each.offset is None else f" at offset {each.offset} of partition {each.partition}"
        row = f"key {readable(each.key)}, value {readable(each.value)}"
        print_line(console, f"{each.kind}{place} ({each.expected} in the input, {each.actual} in the log): {row}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], "verify_log.py", lambda shown: submitted_session("verify log", show_log=shown)))
