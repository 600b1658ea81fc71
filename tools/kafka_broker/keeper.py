"""A process that cleans up a cluster if the process that started it is killed."""

import subprocess
import sys
from pathlib import Path

_END_SECONDS = 10

# Stdin is a pipe that only this process keeps open. It closes whenever this process ends.
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
    """Wait for the end of this process, then kill the pids in ``<folder>/*/pid`` and remove the folder."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def dismiss(self) -> None:
        """Stop the keeper. If the folder still exists, the keeper kills its processes and removes it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_END_SECONDS)
