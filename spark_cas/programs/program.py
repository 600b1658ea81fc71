"""Common parts of the programs: messages on stderr, and the result as JSON in the last line of stdout."""

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from rich.console import Console

from spark_cas.programs.errors import ExitCode, exit_code_of, kind_of, plain_error
from spark_cas.programs.load_progress import console_for_people

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = Mapping[str, object]
StartSession = Callable[[bool], "SparkSession"]
"""Type of functions that start the session. The argument is whether to show Spark's log."""


def parser_of(prog: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """Return a parser with the argument ``--traceback``."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_traceback(parser)
    return parser


def add_traceback(parser: argparse._ActionsContainer) -> None:
    """Add the argument ``--traceback``."""
    parser.add_argument("--traceback", action="store_true", help="of an error, show tracebacks, and Spark's log")


def tell_error(error: Exception, console: Console, *, with_traceback: bool) -> Exception:
    """Print an error that ended a program in one sentence, and return the simplified error."""
    if with_traceback:
        traceback.print_exc()
    plain = plain_error(error)
    tell(console, f"error: {plain}", "red")
    return plain


def tell(console: Console, sentence: str, style: str = "") -> None:
    """Print a sentence without markup, on one line of any length."""
    console.print(sentence, style=style, markup=False, highlight=False, soft_wrap=True)


def run(
    work: "Callable[[SparkSession], tuple[ExitCode, Result]]", start_session: StartSession, *, with_traceback: bool
) -> int:
    """Run the work of a program, print its result, and return the exit code. An error also gives a result."""

    def in_session() -> tuple[ExitCode, Result]:
        # Import here, so that an invalid call fails without pyspark.
        from spark_cas.spark.source import ConditionalLogSource
        from spark_cas.spark.versions import register

        spark = start_session(with_traceback)
        # Otherwise Spark finds the data source only if the first python3 on PATH has this package.
        register(spark, ConditionalLogSource)
        return work(spark)

    began = time.monotonic()
    code, result = outcome_of(in_session, console_for_people(), with_traceback=with_traceback)
    line = json.dumps({**result, "exit_code": int(code), "seconds": round(time.monotonic() - began, 3)})
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
    return code


def outcome_of(
    work: Callable[[], tuple[ExitCode, Result]], console: Console, *, with_traceback: bool
) -> tuple[ExitCode, Result]:
    """Run some work and return its outcome. If it raises an error, print the error and return it as an outcome."""
    try:
        return work()
    except KeyboardInterrupt:
        tell(console, "interrupted", "yellow")
        return ExitCode.INTERRUPTED, {"status": "interrupted"}
    except Exception as error:  # noqa: BLE001 - the result reports every error
        plain = tell_error(error, console, with_traceback=with_traceback)
        return exit_code_of(plain), {"status": "failed", "error": kind_of(plain), "message": str(plain)}
