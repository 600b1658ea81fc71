"""Several seeds of a backend at once: clients rest most of the time, so they take little longer than one."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_SECONDS_BESIDE = 300
"""For what is before and behind the faults: to start, to come to an end, to check."""


def run_side_by_side(backend: str, seeds: Sequence[int], seconds: int, into: Path) -> list[Path]:
    """The folders that the runs leave, each in a process of its own.

    Raises AssertionError with what was not as promised; TimeoutExpired.
    """
    given = ["--backend", backend, "--seconds", str(seconds), "--into", str(into)]
    command = [sys.executable, "-m", "tests.chaos", *given, "--seed"]
    runs = [
        subprocess.Popen([*command, str(seed)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for seed in seeds
    ]
    try:
        told = [each.communicate(timeout=seconds + _SECONDS_BESIDE)[0] for each in runs]
    finally:
        for each in runs:
            each.kill()
            each.wait()
    broken = [text for each, text in zip(runs, told, strict=True) if each.returncode]
    assert not broken, "\n".join(broken)
    return [into / f"{backend}-{seed}" for seed in seeds]
