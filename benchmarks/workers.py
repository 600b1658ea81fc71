"""The peak memory of Spark's Python workers, from /proc."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

_EVERY_SECONDS = 0.05
_KIB_PER_MIB = 1024


class WorkerPeak:
    """A context manager that watches the Python workers below this process.

    ``mib`` is the largest resident set of any worker, from the peak that the kernel records for each process.
    """

    def __init__(self) -> None:
        self.mib = 0.0
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._done.wait(_EVERY_SECONDS):
            peaks = [_peak_mib(worker) for worker in _workers_below(os.getpid())]
            self.mib = max(self.mib, *peaks, 0.0)


def _workers_below(process: int) -> Iterator[Path]:
    return (each for each in processes_below(process) if b"pyspark.daemon" in _read(each / "cmdline"))


def processes_below(process: int) -> Iterator[Path]:
    """Yield the folders in /proc of all descendants of a process."""
    for child in _children(process):
        yield child
        yield from processes_below(int(child.name))


def _children(process: int) -> Iterator[Path]:
    # Each child may have been started by another thread.
    for task in _tasks(process):
        for child in _read(task / "children").split():
            yield Path("/proc", child.decode())


def _tasks(process: int) -> list[Path]:
    try:
        return list(Path("/proc", str(process), "task").iterdir())
    except OSError:
        return []


def _peak_mib(process: Path) -> float:
    for line in _read(process / "status").splitlines():
        if line.startswith(b"VmHWM:"):
            return int(line.split()[1]) / _KIB_PER_MIB
    return 0.0


def _read(file: Path) -> bytes:
    """Return the bytes of a file in /proc, or none if its process has ended."""
    try:
        return file.read_bytes()
    except OSError:
        return b""
