"""CPU time of this process and its descendants, from /proc: JVMs, Python workers and brokers."""

import os
import time
from collections.abc import Callable

from benchmarks.workers import processes_below

_TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
_TIMES = slice(11, 15)
"""The fields after the name in ``stat``: user and system time of the process, and of its reaped children."""


def processor_seconds_of(work: Callable[[], None]) -> float:
    """Return the CPU time of ``work`` in seconds.

    Descendants count in steps of a clock tick (10 ms). Ended ones count after their parent has reaped them.
    """
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
        except OSError:  # it has ended
            continue
        ticks += sum(map(int, said.rpartition(")")[2].split()[_TIMES]))
    return ended.children_user + ended.children_system + ticks * _TICK_SECONDS
