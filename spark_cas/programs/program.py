"""What the programs have in common: people read stderr, other programs the last line of stdout, as JSON."""

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from rich.console import Console

from spark_cas.programs.exit_codes import ExitCode, exit_code_of, kind_of
from spark_cas.programs.load_progress import console_for_people
from spark_cas.programs.plain_errors import plain_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = Mapping[str, object]
StartSession = Callable[[bool], "SparkSession"]
"""Gives the session; told whether to show Spark's log."""


def parser_of(prog: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """A parser with ``--traceback``."""
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
    """Add ``--traceback``, which every program has."""
    parser.add_argument("--traceback", action="store_true", help="of an error, show tracebacks, and Spark's log")


def tell_error(error: Exception, console: Console, *, with_traceback: bool) -> Exception:
    """Tell what ended a program in a sentence, and return the error that the sentence is of."""
    if with_traceback:
        traceback.print_exc()
    plain = plain_error(error)
    tell(console, f"error: {plain}", "red")
    return plain


def tell(console: Console, sentence: str, style: str = "") -> None:
    """Print a sentence as it is, on one line of whatever length."""
    console.print(sentence, style=style, markup=False, highlight=False, soft_wrap=True)


def run(
    work: "Callable[[SparkSession], tuple[ExitCode, Result]]", start_session: StartSession, *, with_traceback: bool
) -> int:
    """Do the work of a program, print its result, and return the exit code; an error becomes both."""

    def in_session() -> tuple[ExitCode, Result]:
        # Here and not above: a wrong call is told without pyspark.
        from spark_cas.spark.source import ConditionalLogSource
        from spark_cas.spark.versions import register

        spark = start_session(with_traceback)
        # Spark finds it by itself only where the first python3 on its PATH has this package.
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
    """What some work comes to; an error is told, and becomes an outcome as well."""
    try:
        return work()
    except KeyboardInterrupt:
        tell(console, "interrupted", "yellow")
        return ExitCode.INTERRUPTED, {"status": "interrupted"}
    except Exception as error:  # noqa: BLE001 - whatever it was, the caller reads it in the result
        plain = tell_error(error, console, with_traceback=with_traceback)
        return exit_code_of(plain), {"status": "failed", "error": kind_of(plain), "message": str(plain)}
