"""Plant known defects one by one into a copy of the tree, and report those that no test detects.

`make mutants` runs all defects. `python -m tests.mutants WORD` runs those whose file or description contains the
word.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_TAIL = 4000
_SECONDS = 900
_SHORT = ("-m", "not full")
"""The tests of `make test`. It runs before each change, so a defect must not need the long suite."""
TESTS_FAILED = 1
"""The exit code of pytest if a test failed. A higher code means a broken call, which proves nothing."""


@dataclass(frozen=True, slots=True)
class Defect:
    """A change at one place, and the tests that must detect it."""

    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def planted(self, source: str) -> str:
        """Return the text of the file with the defect. Raises ValueError unless the place occurs exactly once."""
        if source.count(self.old) != 1:
            raise ValueError(f"{self.file} holds {self.old!r} {source.count(self.old)} times: fix tests/mutants")
        return source.replace(self.old, self.new)


def defects() -> list[Defect]:
    """Return all defects, in the order of the list."""
    listed = tomllib.loads(Path(__file__).with_name("defects.toml").read_text())["defect"]
    return [Defect(**{**each, "tests": tuple(each["tests"])}) for each in listed]


@contextmanager
def copied_tree() -> Iterator[Path]:
    """Copy the current tree, including uncommitted changes, for the duration of the block."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    with tempfile.TemporaryDirectory(prefix="spark-cas-mutants-") as folder:
        for name in files:
            copy = Path(folder, name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy)
        yield Path(folder)


@contextmanager
def planted(defect: Defect, tree: Path) -> Iterator[dict[str, str]]:
    """Plant a defect into a tree for the duration of the block. Yields the environment for its programs."""
    file = tree / defect.file
    source = file.read_text()
    file.write_text(defect.planted(source))
    try:
        yield os.environ | {"PYTHONPATH": f"{tree}:{tree / 'examples'}", "PYTHONDONTWRITEBYTECODE": "1"}
    finally:
        file.write_text(source)


def is_seen(defect: Defect, tree: Path) -> bool:
    """Return whether a test fails in a tree with the defect. The tree is restored afterwards."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *_SHORT, *defect.tests]
    # Into a file, because a pipe stays open as long as any process that the tests started.
    with planted(defect, tree) as environment, tempfile.TemporaryFile("w+") as said:
        ended = subprocess.run(
            command, cwd=tree, env=environment, stdout=said, stderr=said, timeout=_SECONDS, check=False
        )
        said.seek(0)
        if ended.returncode > TESTS_FAILED:
            raise RuntimeError(f"pytest could not run {' '.join(defect.tests)}:\n{said.read()[-_TAIL:]}")
    return ended.returncode == TESTS_FAILED


def main(argv: Sequence[str]) -> int:
    """Return 1 if no test detected one of the defects, otherwise 0."""
    chosen = [each for each in defects() if all(word in f"{each.file} {each.what}" for word in argv)]
    unseen = []
    with copied_tree() as tree:
        for each in chosen:
            seen = is_seen(each, tree)
            unseen += [] if seen else [each]
            print(f"{'seen  ' if seen else 'UNSEEN'} {each.file}: {each.what}", flush=True)
    print(f"{len(chosen) - len(unseen)} of {len(chosen)} defects were seen")
    return int(bool(unseen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
