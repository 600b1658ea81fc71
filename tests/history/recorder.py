"""Write a history: one line when an operation starts and one when it finishes."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self


class Recorder:
    """Record the history of one process in a file, with one JSON object per line. Thread-safe.

    ::

        {"process": "w1", "id": 7, "event": "start", "time_ns": 1, "operation": "append", "arguments": {}}
        {"process": "w1", "id": 7, "event": "ok", "time_ns": 2, "result": {}}

    As in Jepsen, the second ``event`` is ``ok``, ``fail`` or ``info``. ``fail`` means that the operation has no
    effect, now or later. ``info``, or no second line, means that the effect is unknown. Times are from the machine's
    monotonic clock, which its processes share.

    The recorder writes a line before the operation begins and before its caller receives the result. A killed process
    therefore loses no lines. The last line may be incomplete, and readers skip it.
    """

    def __init__(self, file: Path, process: str) -> None:
        self.process = process
        self._lock = Lock()
        before = file.read_bytes() if file.exists() else b""
        # Each operation has at least one line, so this is greater than all existing ids.
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
        """Record the start of an operation and return its id."""
        with self._lock:
            number = self._next
            self._next += 1
        self._write(number, "start", {"operation": operation, "arguments": arguments})
        return number

    def finish(self, number: int, event: str, result: Mapping[str, Any]) -> None:
        """Record the result of an operation. ``event`` is `OK`, `FAIL` or `INFO`."""
        self._write(number, event, {"result": result})

    def _write(self, number: int, event: str, rest: Mapping[str, Any]) -> None:
        head = {"process": self.process, "id": number, "event": event, "time_ns": time.monotonic_ns()}
        line = json.dumps(head | dict(rest), separators=(",", ":")).encode() + b"\n"
        with self._lock:
            while line:
                line = line[os.write(self._file, line) :]
