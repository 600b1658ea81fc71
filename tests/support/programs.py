"""Run a command-line program in this process."""

import io
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from spark_cas import cli
from spark_cas.programs import program
from tests.pages import ROOT, commands


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


_MEASURED = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""
"""Started by pytest, the program itself would begin with the memory of pytest."""


def run_measured(*arguments: str) -> tuple[subprocess.CompletedProcess[str], int]:
    """Run Python in another process. Return how it ended, and its most memory in bytes."""
    command = [sys.executable, "-c", _MEASURED, sys.executable, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    ended.stdout, _, peak_kib = ended.stdout.rstrip("\n").rpartition("\n")
    return ended, int(peak_kib) * 1024


def run_page(page: str, own: Mapping[str, str], session: Any = None, *more: str) -> list[Ended]:
    """Run each ``spark-cas`` command and submitted program of a page, with own addresses and names.

    They run in the Spark session, without a new process. ``more`` are further arguments of each command.
    """
    ended = []
    for words in commands(page):
        line = shlex.join(words)
        for example, value in own.items():
            line = line.replace(example, value)
        name, *arguments = shlex.split(line)
        main = cli.main
        if name == "spark-submit":
            job = Path(arguments.pop(0))
            assert (ROOT / job).is_file()
            submitted = import_module(f"jobs.{job.stem}").main
            main = partial(submitted, prog=job.name, start_session=lambda _: session)
        elif name != "spark-cas":
            continue
        with patch.object(program, "local_session", lambda *_, **__: session):
            ended.append(run_cli(*arguments, *more, main=main))
    assert ended
    return ended
