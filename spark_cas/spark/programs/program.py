"""What the programs have in common: people read stderr, other programs the last line of stdout, as JSON."""

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from spark_cas.spark.programs.exit_codes import ExitCode, exit_code_of, kind_of, plain_error
from spark_cas.spark.programs.load_progress import console_for_people

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = Mapping[str, object]
StartSession = Callable[[bool], "SparkSession"]
"""Gives the session; told whether to show Spark's log."""


def parser_of(prog: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """A parser with ``--debug``."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--debug", action="store_true", help="show Spark's log and stack traces")
    return parser


def run(
    work: "Callable[[SparkSession], tuple[ExitCode, Result]]", start_session: StartSession, *, debug: bool
) -> int:
    """Do the work of a program, print its result, and return the exit code; an error becomes both."""

    def in_session() -> tuple[ExitCode, Result]:
        # Here and not above: a wrong call is told without pyspark.
        from spark_cas.spark.source import ConditionalLogSource

        spark = start_session(debug)
        # Spark finds it by itself only where the first python3 on its PATH has this package.
        spark.dataSource.register(ConditionalLogSource)
        return work(spark)

    began = time.monotonic()
    code, result = _outcome(in_session, debug=debug)
    line = json.dumps({**result, "exit_code": int(code), "seconds": round(time.monotonic() - began, 3)})
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
    return code


def _outcome(work: Callable[[], tuple[ExitCode, Result]], *, debug: bool) -> tuple[ExitCode, Result]:
    try:
        return work()
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED, {"status": "interrupted"}
    except Exception as error:  # noqa: BLE001 - whatever it was, the caller reads it in the result
        if debug:
            traceback.print_exc()
        plain = plain_error(error)
        console = console_for_people()
        console.print(f"error: {plain}", style="red", markup=False, highlight=False, soft_wrap=True)
        return exit_code_of(plain), {"status": "failed", "error": kind_of(plain), "message": str(plain)}
