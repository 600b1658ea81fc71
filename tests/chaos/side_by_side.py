"""Run several seeds of a backend in parallel.

Clients are idle most of the time, so this takes little longer than one run.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_SECONDS_BESIDE = 300
"""The additional time before and after the faults: for start, end and checks."""


def run_side_by_side(backend: str, seeds: Sequence[int], seconds: int, into: Path) -> list[Path]:
    """Run each seed in a separate process, and return the folders of the runs.

    Raises AssertionError with the violations, or TimeoutExpired.
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
