"""Plant known defects one by one into copies of the tree, and report those that no test detects.

`make mutants` runs all defects. `python -m tests.mutants WORD` runs those with the word in any field of the list.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.planting import Defect, chosen, copied_tree, listed, planted

_WORKERS = 2
_TAIL = 4000
_SECONDS = 300
_SHORT = ("-m", "not full")
"""The tests of `make test`. It runs before each change, so a defect must not need the long suite."""
TESTS_FAILED = 1
"""The exit code of pytest if a test failed. A higher code means a broken call, which proves nothing."""


@dataclass(frozen=True, slots=True)
class Tested(Defect):
    """A defect, and the arguments of pytest for the tests that must detect it."""

    tests: tuple[str, ...]


def defects() -> list[Tested]:
    """Return all defects, in the order of the list."""
    return listed(Tested, Path(__file__).with_name("defects.toml"))


def is_seen(defect: Tested, tree: Path) -> bool:
    """Return whether a test fails in a tree with the defect. The tree is restored afterwards."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *_SHORT, *defect.tests]
    # Into a file, because a pipe stays open as long as any process that the tests started.
    with planted(defect, tree) as environment, tempfile.TemporaryFile("w+") as output:
        ended = subprocess.run(
            command, cwd=tree, env=environment, stdout=output, stderr=output, timeout=_SECONDS, check=False
        )
        output.seek(0)
        if ended.returncode > TESTS_FAILED:
            raise RuntimeError(f"pytest could not run {' '.join(defect.tests)}:\n{output.read()[-_TAIL:]}")
    return ended.returncode == TESTS_FAILED


def main(argv: Sequence[str]) -> int:
    """Return 1 if no test detected one of the defects, otherwise 0."""
    planned = chosen(defects(), argv)
    unseen = 0
    with ExitStack() as stack:
        trees: SimpleQueue[Path] = SimpleQueue()
        for _ in range(_WORKERS):
            trees.put(stack.enter_context(copied_tree()))

        def run(defect: Tested) -> bool:
            tree = trees.get()
            try:
                return is_seen(defect, tree)
            finally:
                trees.put(tree)

        pool = stack.enter_context(ThreadPoolExecutor(_WORKERS))
        for each, seen in zip(planned, pool.map(run, planned), strict=True):
            unseen += not seen
            print(f"{'seen  ' if seen else 'UNSEEN'} {each.function}: {each.promise}", flush=True)
    print(f"{len(planned) - unseen} of {len(planned)} defects were seen")
    return int(unseen > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
