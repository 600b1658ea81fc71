"""Clients as processes: start, kill, freeze and restart them by pid."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

STARTED_BY = "SPARK_CAS_CHAOS_STARTED_BY"
"""The environment variable with the pid of the process that started a client. `os.getppid` is not enough, because
that process may have exited before the client calls it."""
_TAIL = 2000
_KILLED_SECONDS = 10


class ClientProcess:
    """A program ``python -m MODULE ARGUMENTS`` that writes its history. Its output is in ``NAME.out``.

    Signals go to its process group, which includes its children, such as the JVM of a Spark driver.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        module: str,
        arguments: Sequence[str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._command = [sys.executable, "-m", module, *arguments]
        self._output = folder / f"{name}.out"
        self._environment = os.environ if environment is None else environment
        self._process: subprocess.Popen[bytes] | None = None
        self._frozen = False
        self._killed_pid = 0
        self._complaints = ""
        """The complaints of earlier processes of this client."""

    @property
    def pid(self) -> int | None:
        """The process id; None before the start."""
        return None if self._process is None else self._process.pid

    @property
    def is_well(self) -> bool:
        return self._process is not None and self._process.poll() is None and not self._frozen

    def start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._complaints = self.complaint
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**self._environment, STARTED_BY: str(os.getpid())},
                start_new_session=True,
            )

    def kill(self) -> None:
        if self._process is not None:
            if self._process.poll() is None:  # keep the complaint of a process that exited without a fault
                self._killed_pid = self._process.pid
            self._send(signal.SIGKILL)
            self._process.wait(_KILLED_SECONDS)
            self._frozen = False

    def freeze(self) -> None:
        if self.is_well and self._process is not None:
            self._send(signal.SIGSTOP)
            self._frozen = True

    def thaw(self) -> None:
        if self._frozen and self._process is not None:
            self._send(signal.SIGCONT)
            self._frozen = False

    def _send(self, sent: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, sent)

    def wait(self, seconds: float) -> bool:
        if self._process is None:
            return True
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    @property
    def complaint(self) -> str:
        process = self._process
        ended = None if process is None else process.poll()
        if process is None or not ended or process.pid == self._killed_pid:
            return self._complaints
        said = self._output.read_text(errors="replace")[-_TAIL:]
        return f"{self._complaints}{self.name} ended with {ended}:\n{said}"
