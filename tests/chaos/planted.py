"""Plants defects one by one, and says which of them chaos does not see within its seeds: a checker that can fail.

``python -m tests.chaos.planted [WORD]``: those whose file or description holds the word.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.__main__ import BROKEN
from tests.mutants.__main__ import Defect, copied_tree, planted

_RUN_SECONDS = 700
_VIOLATION = re.compile("  property [1-9]")
"""And not 0: that a process ended by itself, or did not end, is to be explained before it counts."""
_VERDICT = "verdict: "
_TAIL = 3000


@dataclass(frozen=True, slots=True)
class Planted:
    """A defect, and the runs that have to see it: on which backend, how long, and with how many seeds at most."""

    defect: Defect
    backend: str
    seconds: int
    seeds: int
    faults: Sequence[str]
    """The kinds that it takes; none for all that there are."""


def planted_defects() -> list[Planted]:
    """All of them, in the order of the list."""
    listed = tomllib.loads(Path(__file__).with_name("defects.toml").read_text())["defect"]
    return [
        Planted(
            Defect(each["what"], each["file"], each["old"], each["new"], ()),
            each["backend"],
            each["seconds"],
            each["seeds"],
            each.get("faults", ()),
        )
        for each in listed
    ]


def seen_by(each: Planted, tree: Path) -> tuple[int, str] | None:
    """The first seed of a run that sees the defect, and what it tells first; None when none does."""
    for seed in range(1, each.seeds + 1):
        with planted(each.defect, tree) as environment, tempfile.TemporaryDirectory() as folder:
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
    """1 when a defect was not seen."""
    chosen = [
        each for each in planted_defects() if all(word in f"{each.defect.file} {each.defect.what}" for word in argv)
    ]
    unseen = 0
    with copied_tree() as tree:
        for each in chosen:
            found = seen_by(each, tree)
            unseen += found is None
            told = f"not within {each.seeds} seeds" if found is None else f"by seed {found[0]}: {found[1]}"
            word = "UNSEEN" if found is None else "seen  "
            print(f"{word} {each.backend} {each.defect.file}: {each.defect.what}\n       {told}", flush=True)
    print(f"{len(chosen) - unseen} of {len(chosen)} defects were seen")
    return int(unseen > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
