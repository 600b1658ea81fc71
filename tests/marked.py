"""Processes that share an environment variable, which their child processes inherit."""

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


def end_marked(environment: Mapping[str, str]) -> list[int]:
    """Kill all processes that were started with these variables, also stopped ones. Return their ids."""
    left = _marked(environment)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return left


def _marked(environment: Mapping[str, str]) -> list[int]:
    marks = {f"{name}={value}".encode() for name, value in environment.items()}
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # the process has ended, or another user owns it
            continue
        if marks.issubset(variables):
            found.append(int(folder.name))
    return found
