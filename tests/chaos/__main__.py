"""Chaos tests: run clients under random faults, and check that every response they received is true.

``python -m tests.chaos --backend BACKEND --seed N --minutes M --into FOLDER``. The exit code is 0 if all properties
hold, and 1 if a run violates any.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.places import PLACES, STORES
from tests.chaos.report import leave, lines
from tests.chaos.run import run

BROKEN = 1


def main(argv: Sequence[str]) -> int:
    """Run each named backend once."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--backend", choices=[*PLACES, "all"], default="all")
    parser.add_argument("--seed", type=int, default=1, help="names the schedule of faults")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, default=1.0)
    length.add_argument("--seconds", type=float)
    parser.add_argument("--faults", nargs="+", metavar="KIND", default=(), help="kinds of faults (default: all)")
    parser.add_argument(
        "--sessions", type=int, default=1, help=f"of each client, where it is one of {' or '.join(STORES)}"
    )
    parser.add_argument("--into", type=Path, default=Path("build/chaos"), help="the folder that the runs leave")
    given = parser.parse_args(argv)
    seconds = given.seconds or 60 * given.minutes
    code = 0
    for backend in PLACES if given.backend == "all" else [given.backend]:
        folder = (given.into / f"{backend}-{given.seed}").absolute()
        if folder.exists() and any(folder.iterdir()):
            parser.error(f"{folder} holds a run already: name another folder with --into, or remove it")
        folder.mkdir(parents=True, exist_ok=True)
        outcome = run(backend, given.seed, seconds, folder, kinds=given.faults, sessions=given.sessions)
        leave(outcome, folder)
        print("\n".join([*lines(outcome), f"see {folder / 'README.md'}", ""]), flush=True)
        code |= BROKEN if outcome.violations else 0
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
