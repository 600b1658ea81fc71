"""Run a command-line program in this process."""

import io
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple
from unittest.mock import patch

from spark_cas import cli
from spark_cas.programs import program
from tests.pages import commands


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


def run_page(page: str, own: Mapping[str, str], session: Any = None, *more: str) -> list[Ended]:
    """Run each ``spark-cas`` command of a page, with own addresses and names instead of those of the page.

    Loads run in the Spark session. ``more`` are further arguments of each command.
    """
    ended = []
    for words in commands(page):
        line = shlex.join(words)
        for example, value in own.items():
            line = line.replace(example, value)
        name, *arguments = shlex.split(line)
        assert name == "spark-cas"
        with patch.object(program, "local_session", lambda *_, **__: session):
            ended.append(run_cli(*arguments, *more))
    return ended
