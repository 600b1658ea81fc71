"""Detect whether a process of this machine is still running, so that a killed load is recognized at once.

A process is identified by the boot id of its machine, its PID namespace, its PID and its start time. If these are not
available (only Linux has them), or the process is on another machine, its state is unknown.
"""

import os
from pathlib import Path

_PROC = Path("/proc")


def name_of(pid: int) -> str:
    """Return the name of a running process, the same for all callers in its namespace. Empty if it does not run."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespace = (_PROC / "self/ns/pid").readlink()
        # The last bracket ends the program's name, which may contain any character.
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        state, started = fields[0], fields[19]
    except (OSError, IndexError):
        return ""
    return "" if state in "ZX" else f"{boot}/{namespace}|{pid}/{started}"


def is_running(name: str) -> bool | None:
    """Return whether a process runs, None if that is unknown."""
    place, _, process = name.partition("|")
    here, _, _ = name_of(os.getpid()).partition("|")
    if not place or place != here:
        return None
    return name_of(int(process.partition("/")[0])) == name
