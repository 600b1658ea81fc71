"""Check the checker: plant defects one by one, and report those that chaos does not detect within its seeds.

``python -m tests.chaos.planted [WORD]`` plants only the defects with the word in any field of the list.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.__main__ import BROKEN
from tests.mutants.planting import Defect, chosen, copied_tree, listed, planted

_RUN_SECONDS = 700
_VIOLATION = re.compile("  property [1-9]")
"""Property 0 does not count: a process that exited without a fault, or did not exit, needs an explanation first."""
_VERDICT = "verdict: "
_TAIL = 3000


@dataclass(frozen=True, slots=True)
class Planted(Defect):
    """A defect, and the runs that must detect it: the backend, the duration, and the maximum number of seeds."""

    backend: str
    seconds: int
    seeds: int
    faults: tuple[str, ...] = ()
    """The types of faults that it needs; empty for all."""


def planted_defects() -> list[Planted]:
    """Return all defects in the order of the list."""
    return listed(Planted, Path(__file__).with_name("defects.toml"))


def detecting_seed(each: Planted, tree: Path) -> tuple[int, str] | None:
    """Return the first seed that detects the defect, and the last violation it printed; None if no seed does."""
    for seed in range(1, each.seeds + 1):
        with planted(each, tree) as environment, tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "tests.chaos", "--backend", each.backend, "--seed", str(seed)]
            command += ["--seconds", str(each.seconds), "--into", folder]
            command += ["--faults", *each.faults] if each.faults else []
            ended = subprocess.run(
                command, cwd=tree, env=environment, capture_output=True, text=True, timeout=_RUN_SECONDS, check=False
            )
        told = [line.strip() for line in ended.stdout.splitlines() if _VIOLATION.match(line)]
        if ended.returncode == BROKEN and told:
            return seed, told[-1]
        if _VERDICT not in ended.stdout:
            raise RuntimeError(f"chaos could not run:\n{(ended.stdout + ended.stderr)[-_TAIL:]}")
    return None


def main(argv: Sequence[str]) -> int:
    """Run the chosen defects; return 1 if any is not detected."""
    planned = chosen(planted_defects(), argv)
    unseen = 0
    with copied_tree() as tree:
        for each in planned:
            found = detecting_seed(each, tree)
            unseen += found is None
            told = f"not within {each.seeds} seeds" if found is None else f"by seed {found[0]}: {found[1]}"
            word = "UNSEEN" if found is None else "seen  "
            print(f"{word} {each.backend} {each.function}: {each.promise}\n       {told}", flush=True)
    print(f"{len(planned) - unseen} of {len(planned)} defects were seen")
    return int(unseen > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
