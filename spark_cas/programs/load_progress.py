"""Live progress of a bulk load: a progress bar on a terminal, otherwise log lines at intervals."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from spark_cas.programs.load_watch import Phase, Snapshot

_POLL_SECONDS = 0.5
_FIRST_LINE_SECONDS, _LAST_LINE_SECONDS = 1.0, 30.0
_LINES_SHARE = 10
"""Divisor of the elapsed time for the interval between two lines. The interval is at least 1 s and at most 30 s."""
_POLLING_SHARE = 4
"""Minimum interval between two reads of the ledger, as a multiple of the duration of a read."""


def console_for_people() -> Console:
    """Return a console for stderr, or for the terminal of spark-submit.

    spark-submit reads stderr of a Python program through a pipe and prints it on its own stdout. The program
    therefore does not detect a terminal, and its messages would mix with the result.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ and not sys.stderr.isatty():
        # Only Linux exposes the open files of another process. Other systems get lines instead of a bar.
        with suppress(OSError):
            stderr_of_parent = Path(f"/proc/{os.getppid()}/fd/2")
            terminal = stderr_of_parent.open("w", encoding="utf-8")
            if terminal.isatty():
                return Console(file=terminal)
            terminal.close()
    return Console(stderr=True)


class Display(Protocol):
    """Display the progress of a load."""

    def show(self, seen: Snapshot) -> None: ...

    def close(self) -> None: ...


@contextmanager
def live_progress(console: Console, look: Callable[[], Snapshot]) -> Iterator[None]:
    """Display the progress of a load in a background thread while the context is active.

    Args:
        console: the console
        look: returns the current state; called in the background thread
    """
    display: Display = _Bar(console) if console.is_terminal else _Lines(console)
    done = Event()
    thread = Thread(target=_poll, args=(look, display, done), name="load progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        # An unresponsive store must not delay the end of the load.
        thread.join(timeout=2)
        display.close()


def describe(seen: Snapshot) -> str:
    """Return the progress as text: ``120,000 of 336,776 rows, 41,000 rows/s, 5 s left``."""
    if seen.phase is Phase.STARTING:
        return seen.waiting or "Spark plans the load"
    parts = [f"{seen.rows:,} rows" if seen.total is None else f"{seen.rows:,} of {seen.total:,} rows"]
    if seen.tasks:
        parts = [f"{parts[0]} read", f"{seen.tasks_done} of {seen.tasks} tasks done"]
    if seen.rows_per_second is not None:
        parts.append(f"{seen.rows_per_second:,.0f} rows/s")
    if seen.waiting is not None:
        parts.append(seen.waiting)
    elif seen.seconds_left is not None:
        parts.append(f"{duration(seen.seconds_left)} left")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Return a duration as text: ``5 s``, ``3 min 20 s``, ``2 h 5 min``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _poll(look: Callable[[], Snapshot], display: Display, done: Event) -> None:
    pause = _POLL_SECONDS
    while not done.wait(pause):
        began = time.monotonic()
        seen = look()
        if not done.is_set():
            display.show(seen)
        pause = max(_POLL_SECONDS, _POLLING_SHARE * (time.monotonic() - began))


class _Bar:
    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<9}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[words]}"),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task(Phase.STARTING.value, total=None, words="Spark plans the load")
        self._phase = Phase.STARTING
        self._progress.start()

    def show(self, seen: Snapshot) -> None:
        if seen.phase is not self._phase:
            # Create a new task, because a bar cannot return to an unknown total.
            self._progress.remove_task(self._task)
            self._task = self._progress.add_task(seen.phase.value, total=None, words="")
            self._phase = seen.phase
        total = None if seen.share is None else 1.0
        self._progress.update(self._task, total=total, completed=seen.share or 0.0, words=describe(seen))

    def close(self) -> None:
        self._progress.stop()


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._phase: Phase | None = None
        self._began = time.monotonic()
        self._said = 0.0

    def show(self, seen: Snapshot) -> None:
        now = time.monotonic()
        pause = min(_LAST_LINE_SECONDS, max(_FIRST_LINE_SECONDS, (now - self._began) / _LINES_SHARE))
        if seen.phase is self._phase and now - self._said < pause:
            return
        self._phase, self._said = seen.phase, now
        self._console.print(f"{seen.phase.value}: {describe(seen)}", highlight=False, soft_wrap=True)

    def close(self) -> None:
        pass
