"""Drivers as real processes, which end with the test."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Self

from tests.faults.failpoints import Failpoints
from tests.faults.rows import CHUNK, PARTITIONS
from tests.spark_cluster import DRIVER_CONF, spark_environment

DRIVER = Path(__file__).parent / "driver.py"
ANSWER_WITHIN_SECONDS = 150.0
_END_WITHIN_SECONDS = 10.0

LOCAL_CONF = {**DRIVER_CONF, "spark.master": "local[2,4]"}
"""Two concurrent tasks with four attempts each, as on a cluster."""


class Driver:
    """A driver process that runs one write at a time. It is started when needed, also after a kill."""

    def __init__(
        self,
        folder: Path,
        failpoints: Failpoints,
        conf: Mapping[str, str] = LOCAL_CONF,
        executors: int = 0,
    ) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._environment = spark_environment(failpoints.environment, "127.0.0.1", folder)
        self._command = [sys.executable, str(DRIVER), "--executors", str(executors), "--conf"]
        self._conf = {**conf, "spark.local.dir": str(folder / "scratch")}
        self._process: subprocess.Popen[str] | None = None
        self._answers: SimpleQueue[str] = SimpleQueue()
        self._orders = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> None:
        """Start the process unless it runs, and wait until its session is ready."""
        if self._process is not None and self._process.poll() is None:
            return
        with (self.folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, json.dumps(self._conf)],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._answers = SimpleQueue()
        Thread(target=_collect, args=(self._process, self._answers), daemon=True).start()
        self._next_answer()

    def write(
        self, source: str, log: Path | str, *, order_by: tuple[str, ...] = (), restless: bool = False, **options: str
    ) -> dict[str, Any]:
        """Run a write to its end and return its result."""
        self.begin(source, log, order_by=order_by, restless=restless, **options)
        return self.answer()

    def begin(
        self, source: str, log: Path | str, *, order_by: tuple[str, ...] = (), restless: bool = False, **options: str
    ) -> None:
        """Begin a write with small chunks; the same arguments begin the same write."""
        defaults = {"partitions": str(PARTITIONS), "maxRecordsPerChunk": str(CHUNK), "fencedRetryWaitMs": "20000"}
        order = {
            "input": source,
            "log": str(log),
            "order_by": order_by,
            "restless": restless,
            "options": defaults | options,
        }
        self._send(order)

    def begin_state(self, log: Path | str, *arguments: str) -> None:
        """Begin to save the state of a log, by the program with these arguments."""
        self._send({"log": str(log), "state": arguments})

    def begin_files(self, log: Path | str, *arguments: str) -> None:
        """Begin a bulk load into a log, by the program with these arguments."""
        self._send({"log": str(log), "files": arguments})

    def _send(self, order: dict[str, Any]) -> None:
        self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._orders += 1
        self._process.stdin.write(json.dumps({"number": self._orders, **order}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Wait for the write that was begun last, and return its result."""
        while (answer := self._next_answer())["number"] != self._orders:
            pass
        return answer

    def _next_answer(self) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=ANSWER_WITHIN_SECONDS)
        except Empty:
            self.kill()  # its remaining work must not affect the next test
            raise TimeoutError(f"the driver gave no answer; its log ends:\n{self._log_end()}") from None
        if not line:
            raise RuntimeError(f"the driver ended; its log ends:\n{self._log_end()}")
        return json.loads(line)

    def kill(self) -> None:
        """Kill the Python process and the JVM of the driver with SIGKILL, as an operator would."""
        assert self._process is not None
        assert self._process.stdin is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(_END_WITHIN_SECONDS)
        self._process.stdin.close()

    def end(self) -> None:
        """End the driver and all processes that it started: tasks may append for a second after their job fails."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_WITHIN_SECONDS)
        finally:
            _kill_session(self._process.pid)

    def _log_end(self) -> str:
        return (self.folder / "driver.log").read_text(errors="replace")[-4000:]


def is_idle(pid: int) -> bool:
    """Return whether a process has ended, or uses no CPU time for a second."""
    before = _cpu_ticks(pid)
    time.sleep(1)
    return _cpu_ticks(pid) in (None, before)


def _cpu_ticks(pid: int) -> tuple[str, ...] | None:
    fields = _stat(pid)
    return tuple(fields[11:13]) if fields else None


def _stat(pid: int) -> list[str] | None:
    """Return the fields after the name, from the state on. Return None if the process has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields


def _collect(process: subprocess.Popen[str], answers: SimpleQueue[str]) -> None:
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            answers.put(line)
    answers.put("")


def _kill_session(session: int) -> None:
    """Kill all processes of a session. The process group is not enough: Spark's Python workers have their own."""
    deadline = time.monotonic() + _END_WITHIN_SECONDS
    while left := [pid for pid in _processes() if _session_of(pid) == session]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {left} did not end")
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _processes() -> list[int]:
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]


def _session_of(pid: int) -> int | None:
    """Return the session of a process, or None if the process has ended."""
    fields = _stat(pid)
    return int(fields[3]) if fields else None
