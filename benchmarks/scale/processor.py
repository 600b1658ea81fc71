"""Processor time of this process and all below it, from /proc: of JVMs, Python's workers and brokers."""

import os
import time
from collections.abc import Callable

from benchmarks.workers import processes_below

_TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
_TIMES = slice(11, 15)
"""Of what follows the name in ``stat``: user and system, its own and that of children that it has seen end."""


def processor_seconds_of(work: Callable[[], None]) -> float:
    """What a piece of work takes. What is below counts in steps of 10 ms, what has ended once its parent knows."""
    below, own = _below(), time.process_time()
    work()
    own = time.process_time() - own
    return own + _below() - below


def _below() -> float:
    ended = os.times()
    ticks = 0
    for process in processes_below(os.getpid()):
        try:
            said = (process / "stat").read_text()
        except OSError:  # ended meanwhile
            continue
        ticks += sum(map(int, said.rpartition(")")[2].split()[_TIMES]))
    return ended.children_user + ended.children_system + ticks * _TICK_SECONDS
