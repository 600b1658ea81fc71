"""Program that saves the state of a log, in full or as an update of an earlier state."""

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_cas.programs.errors import ExitCode, UsageError
from spark_cas.programs.load_progress import console_for_people
from spark_cas.programs.log_argument import add_log_arguments, log_address, options_beside
from spark_cas.programs.program import Result, StartSession, parser_of, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EPILOG = """\
A folder gets the rows, under a name of their own, and last the file in "offsets", which names them and the offsets
that they lie at; a table gets the property spark_cas.offsets. What a stopped run leaves is taken for no state.

exit codes: 0 saved; 1 failed, run it again; 2 usage; 3 refused: the log is not the one that --since was taken of;
130 interrupted. The last line on stdout is the result as JSON: its expected_offsets are for the next write.
"""


def parse_arguments(argv: Sequence[str], prog: str) -> argparse.Namespace:
    """Parse a command line. If it is invalid, print usage and exit with 2."""
    parser = parser_of(
        prog, "Save the newest value of each key of a log, and the offsets that this state lies at.", _EPILOG
    )
    add_log_arguments(parser.add_argument_group("log"))
    state = parser.add_argument_group("state")
    state.add_argument("--output", required=True, metavar="PLACE", help="a new folder, or the name of a new table")
    state.add_argument("--format", choices=("parquet", "csv", "table"), default="parquet", help="default: parquet")
    state.add_argument(
        "--since", metavar="SNAPSHOT", help="an earlier output in the same format: only what came after it is read"
    )
    given = parser.parse_args(argv)
    try:
        given.log = log_address(given.log, given.bootstrap_servers, given.topic)
        given.log_options = options_beside(given.log_option, "--log-option")
    except UsageError as error:
        parser.error(str(error))
    return given


def main(argv: Sequence[str], prog: str, start_session: StartSession) -> int:
    """Run the program from its command line and return the exit code."""
    given = parse_arguments(argv, prog)
    return run(lambda spark: _save(given, spark), start_session, with_traceback=given.traceback)


def _save(given: argparse.Namespace, spark: "SparkSession") -> tuple[ExitCode, Result]:
    from spark_cas.programs.save_state import save_state

    saved = save_state(spark, {**given.log_options, "path": given.log}, given.format, given.output, given.since)
    where = saved.name if given.format == "table" else f"{given.output.rstrip('/')}/{saved.name}"
    told = f"{saved.rows:,} keys of log {saved.at.topic} saved in {where}"
    console_for_people().print(told, markup=False, highlight=False, soft_wrap=True)
    offsets = json.loads(saved.at.expected_offsets)
    return ExitCode.COMPLETE, {"status": "complete", "rows": saved.rows, "state": where, "expected_offsets": offsets}
