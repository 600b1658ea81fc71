"""Whether a process of this machine is still there: the sign by which a load that was killed is known at once.

A process is told by what no other has: the boot of its machine, its namespace of process ids, its id and when it
started. Where that is not to be had (Linux has it), or on another machine, nothing is known of it.
"""

import os
from pathlib import Path

_PROC = Path("/proc")


def name_of(pid: int) -> str:
    """The name of a process that runs, the same in all processes beside it; empty where there is none."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespace = (_PROC / "self/ns/pid").readlink()
        # What stands before the last bracket is the program's name, which may hold anything.
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        state, started = fields[0], fields[19]
    except (OSError, IndexError):
        return ""
    return "" if state in "ZX" else f"{boot}/{namespace}|{pid}/{started}"


def is_running(name: str) -> bool | None:
    """Whether a process runs; None where nothing is known of it."""
    place, _, process = name.partition("|")
    here, _, _ = name_of(os.getpid()).partition("|")
    if not place or place != here:
        return None
    return name_of(int(process.partition("/")[0])) == name
