"""The linearizability checker, a Go program that uses Porcupine: built once, and run with a deadline."""

import hashlib
import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.executables import executable
from tools.kafka_broker.jars import cache_folder

SOURCE = Path(__file__).parent
BUILD_SECONDS = 300
"""The time limit includes the first download of the module."""
_OK, _NOT, _UNKNOWN = 0, 1, 3


class CheckerFailedError(Exception):
    """The checker could not be built, or gave no verdict."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a history is linearizable, and the output of the checker: the keys whose histories are not."""

    linearizable: bool
    told: str


def linearizable(history: Iterable[Mapping[str, Any]], seconds: float = 60) -> Verdict:
    """Check operations in the format of ``main.go``.

    Raises CheckerFailedError, also if the time limit is too short.
    """
    lines = "".join(f"{json.dumps(each)}\n" for each in history)
    command = [str(built()), "-limit", f"{seconds}s"]
    try:
        ran = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=seconds + 30, check=False)
    except subprocess.TimeoutExpired:
        raise CheckerFailedError(f"the checker did not end within {seconds + 30} s") from None
    if ran.returncode not in (_OK, _NOT):
        why = "time did not suffice" if ran.returncode == _UNKNOWN else "it takes no such history"
        raise CheckerFailedError(f"{why}: {ran.stdout}{ran.stderr}")
    return Verdict(ran.returncode == _OK, ran.stdout.strip())


def built() -> Path:
    """Build the program unless the cache has it, and return its path.

    Raises CheckerFailedError, or MissingProgramError if there is no Go.
    """
    sources = [SOURCE / name for name in ("go.mod", "go.sum", "main.go", "model.go")]
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()[:16]
    program = cache_folder() / "porcupine" / digest
    if program.exists():
        return program
    go = executable("go")
    program.parent.mkdir(parents=True, exist_ok=True)
    # Several processes may build at the same time: each moves a complete program to the path.
    new = program.with_name(f"{digest}.{os.getpid()}")
    command = [go, "build", "-o", str(new), "."]
    ran = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
    if ran.returncode != 0:
        raise CheckerFailedError(f"the linearizability checker could not be built:\n{ran.stderr}")
    new.replace(program)
    return program


if __name__ == "__main__":
    built()
