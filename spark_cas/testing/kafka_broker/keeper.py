"""A small process that cleans up after a cluster when the process that started it is killed."""

import subprocess
import sys
from pathlib import Path

_END_SECONDS = 10

# Its input is a pipe whose other end only we hold: the pipe ends when we do, however we do.
_PROGRAM = """
import os, pathlib, shutil, signal, sys, time
folder = pathlib.Path(sys.argv[1])
sys.stdin.read()
deadline = time.monotonic() + 30
while folder.exists() and time.monotonic() < deadline:
    for pid in folder.glob("*/pid"):
        try:
            os.kill(int(pid.read_text()), signal.SIGKILL)
        except (OSError, ValueError):
            pass
    shutil.rmtree(folder, ignore_errors=True)
"""


class Keeper:
    """Waits for the end of this process; then kills the pids in ``<folder>/*/pid`` and removes the folder."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def dismiss(self) -> None:
        """End it. The folder must be gone by now, or it goes."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_END_SECONDS)
