"""Run a command-line program in this process."""

import io
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from spark_cas import cli


class Ended(NamedTuple):
    """A program that ended."""

    code: int
    out: str
    err: str


def run_cli(*argv: str, main: Callable[[Sequence[str]], int] = cli.main) -> Ended:
    """Run ``spark-cas``, or the program of another ``main``."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(argv)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
    return Ended(code, out.getvalue(), err.getvalue())
