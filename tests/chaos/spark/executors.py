"""Faults of executors and Python workers, which are found among the descendants of the processes of a run."""

import os
import random
import signal
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.faults import Fault, Undo

_EXECUTOR = b"CoarseGrainedExecutorBackend"
_PYTHON = b"pyspark.daemon"


@dataclass(frozen=True)
class Process:
    """A process, its parent, and its command line."""

    pid: int
    parent: int
    command: bytes


class StruckProcess:
    """Send a signal to one of the processes of a type, and at the end another signal, if there is one."""

    def __init__(
        self, find: Callable[[], Iterable[Process]], strike: signal.Signals, go_on: signal.Signals | None
    ) -> None:
        self._find = find
        self._strike = strike
        self._go_on = go_on

    def begin(self, chance: random.Random, seconds: float) -> tuple[str, Undo] | None:
        found = sorted(self._find(), key=lambda each: each.pid)
        if not found:
            return None
        pid = chance.choice(found).pid

        def end() -> None:
            if self._go_on is not None:
                _send(pid, self._go_on)

        return (str(pid), end) if _send(pid, self._strike) else None


def process_faults(roots: Callable[[], Iterable[int]]) -> dict[str, Fault]:
    """Return SIGKILL and SIGSTOP faults of executors and Python workers that descend from the roots.

    A Python worker is forked by the daemon of an executor, where it runs tasks, or by that of a driver, where it
    plans. An executor is a target only after it has started such a daemon. Otherwise executors might never do any
    work, and no load would complete.
    """

    def executors() -> list[Process]:
        found = below(roots())
        at_work = {each.parent for each in found if _PYTHON in each.command}
        return [each for each in found if _EXECUTOR in each.command and each.pid in at_work]

    def workers() -> list[Process]:
        found = [each for each in below(roots()) if _PYTHON in each.command]
        daemons = {each.pid for each in found}
        return [each for each in found if each.parent in daemons]

    kinds = {"executor": executors, "python-worker": workers}
    kills: dict[str, Fault] = {f"kill-{it}": StruckProcess(kinds[it], signal.SIGKILL, None) for it in kinds}
    return kills | {f"freeze-{it}": StruckProcess(kinds[it], signal.SIGSTOP, signal.SIGCONT) for it in kinds}


def below(roots: Iterable[int]) -> list[Process]:
    """Return the current children of these processes, and all of their descendants."""
    children: dict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                children[int(fields[1])].append(int(folder.name))
    found, parents = [], list(roots)
    while parents:
        parent = parents.pop()
        found += [Process(pid, parent, _command(pid)) for pid in children[parent]]
        parents += children[parent]
    return found


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # the process has ended
        return b""


def _send(pid: int, sent: signal.Signals) -> bool:
    try:
        os.kill(pid, sent)
    except ProcessLookupError:
        return False
    return True
