"""spark-submit jobs/bootstrap_state.py: save the state of a log, with its end offsets. See --help."""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_cas.programs.arguments import add_log, checked_options, log_address, parser_of
from spark_cas.programs.errors import ExitCode, UsageError
from spark_cas.programs.program import Result, StartSession, message_console, print_line, run, submitted_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EPILOG = """\
In a folder, the program writes the rows under a unique name, and then the file in "offsets", which has that name and
the offsets of the state. A table has the offsets in its property spark_cas.offsets. The output of an interrupted run
is not a state.

exit codes: 0 saved; 1 failed, run it again; 2 usage; 3 rejected: --since was saved from another log;
6 the log is missing, damaged or trimmed; 7 a right is missing; 130 interrupted.
The last line on stdout is the result as JSON. Its expected_offsets are for the next write.
"""


def parse_arguments(argv: Sequence[str], prog: str) -> argparse.Namespace:
    """Parse a command line. If it is invalid, print usage and exit with 2."""
    parser = parser_of(prog, "Save the newest value of each key of a log, with the offsets of this state.", _EPILOG)
    add_log(parser.add_argument_group("log"))
    state = parser.add_argument_group("state")
    state.add_argument("--output", required=True, metavar="PLACE", help="a new folder, or the name of a new table")
    state.add_argument("--format", choices=("parquet", "csv", "table"), default="parquet", help="default: parquet")
    state.add_argument(
        "--since", metavar="SNAPSHOT", help="an earlier output in the same format: read only newer records"
    )
    arguments = parser.parse_args(argv)
    try:
        path = {"path": log_address(arguments)}
        arguments.log_options = checked_options(arguments.log_option, "--log-option") | path
    except UsageError as error:
        parser.error(str(error))
    return arguments


def main(argv: Sequence[str], prog: str, start_session: StartSession) -> int:
    """Run the program from its command line and return the exit code."""
    return run(_save, parse_arguments(argv, prog), start_session)


def _save(arguments: argparse.Namespace, spark: "SparkSession") -> tuple[ExitCode, Result]:
    from spark_cas.programs.saved_state import save_state

    saved = save_state(spark, arguments.log_options, arguments.format, arguments.output, arguments.since)
    place = saved.name if arguments.format == "table" else f"{arguments.output.rstrip('/')}/{saved.name}"
    print_line(message_console(), f"{saved.rows:,} keys of log {saved.at.topic} saved in {place}")
    offsets = json.loads(saved.at.expected_offsets)
    return ExitCode.COMPLETE, {"status": "complete", "rows": saved.rows, "state": place, "expected_offsets": offsets}


if __name__ == "__main__":
    sys.exit(
        main(sys.argv[1:], "bootstrap_state.py", lambda shown: submitted_session("bootstrap state", show_log=shown))
    )
