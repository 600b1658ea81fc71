"""Writing a history: a line when an operation starts, another when it has finished."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self


class Recorder:
    """The history of one process in a file of its own, one JSON object a line. Its threads may share it.

    ::

        {"process": "w1", "id": 7, "event": "start", "time_ns": 1, "operation": "append", "arguments": {}}
        {"process": "w1", "id": 7, "event": "ok", "time_ns": 2, "result": {}}

    ``event`` of the second is, as Jepsen names it, ``ok``; ``fail`` for what definitely has no effect, now or later;
    ``info`` for what may have one. Without a second line nobody knows either. Times are of the machine's monotonic
    clock, which its processes share. A line is handed to the system whole before the operation begins, and before
    its caller learns what came of it, so a killed process loses none; only a last line may be torn, and is passed
    over.
    """

    def __init__(self, file: Path, process: str) -> None:
        self.process = process
        self._lock = Lock()
        before = file.read_bytes() if file.exists() else b""
        # Each operation has a line, so this is above all ids that were given.
        self._next = before.count(b"\n") + 1
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if before and not before.endswith(b"\n"):
            os.write(self._file, b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def start(self, operation: str, arguments: Mapping[str, Any]) -> int:
        """Record that an operation begins; returns its id."""
        with self._lock:
            number = self._next
            self._next += 1
        self._write(number, "start", {"operation": operation, "arguments": arguments})
        return number

    def finish(self, number: int, event: str, result: Mapping[str, Any]) -> None:
        """Record what came of an operation: `OK`, `FAIL` or `INFO`."""
        self._write(number, event, {"result": result})

    def _write(self, number: int, event: str, rest: Mapping[str, Any]) -> None:
        head = {"process": self.process, "id": number, "event": event, "time_ns": time.monotonic_ns()}
        line = json.dumps(head | dict(rest), separators=(",", ":")).encode() + b"\n"
        with self._lock:
            while line:
                line = line[os.write(self._file, line) :]
