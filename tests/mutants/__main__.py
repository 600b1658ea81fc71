"""Plants one defect after the other into a copy of the tree, and says which of them no test sees.

`make mutants` runs all; `python -m tests.mutants WORD` those whose file or description holds the word.
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
"""As `make test`: what only the long suite sees is not seen before each change."""
TESTS_FAILED = 1
"""What pytest ends with when a test failed: anything higher is a broken call, which proves nothing."""


@dataclass(frozen=True, slots=True)
class Defect:
    """A change of one place, and the tests that have to see it."""

    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def planted(self, source: str) -> str:
        """The text of the file with the defect in it. Raises ValueError unless the place is there, once."""
        if source.count(self.old) != 1:
            raise ValueError(f"{self.file} holds {self.old!r} {source.count(self.old)} times: fix tests/mutants")
        return source.replace(self.old, self.new)


def defects() -> list[Defect]:
    """All of them, in the order of the list."""
    listed = tomllib.loads(Path(__file__).with_name("defects.toml").read_text())["defect"]
    return [Defect(**{**each, "tests": tuple(each["tests"])}) for each in listed]


@contextmanager
def copied_tree() -> Iterator[Path]:
    """A copy of the tree as it is, to be changed, until the end of the block."""
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
    """A tree with the defect until the end of the block; yields the environment to run its programs with."""
    file = tree / defect.file
    source = file.read_text()
    file.write_text(defect.planted(source))
    try:
        yield os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    finally:
        file.write_text(source)


def is_seen(defect: Defect, tree: Path) -> bool:
    """Whether a test fails in a tree that has the defect; the tree is as before afterwards."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *_SHORT, *defect.tests]
    # Into a file: a pipe is at its end only when whatever the tests left behind is.
    with planted(defect, tree) as environment, tempfile.TemporaryFile("w+") as said:
        ended = subprocess.run(
            command, cwd=tree, env=environment, stdout=said, stderr=said, timeout=_SECONDS, check=False
        )
        said.seek(0)
        if ended.returncode > TESTS_FAILED:
            raise RuntimeError(f"pytest could not run {' '.join(defect.tests)}:\n{said.read()[-_TAIL:]}")
    return ended.returncode == TESTS_FAILED


def main(argv: Sequence[str]) -> int:
    """1 when a defect was seen by no test."""
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
