"""The test's side of the failpoints in ``workers/sitecustomize.py``: arm them, read their events, release them."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

WORKERS = Path(__file__).parent / "workers"
VARIABLE = "SPARK_CAS_FAULTS"

T = TypeVar("T")


@dataclass(frozen=True)
class Point:
    """The action of a process at a put, at a step of a source, or before it saves the offsets of a state."""

    at: str
    """``before`` the put, ``staged`` (written, not yet linked), ``linked``, or ``refused`` (the name existed).
    ``source``: a step has returned its result, and Spark does not have it yet. ``saving``: the rows of a state are
    written."""
    path: str
    """A regular expression for the path below the log's root, for the method of the source, or for the path of the
    rows."""
    action: str
    """``kill``, ``stop``, ``kill_executor``, ``wait`` (for the test), ``overtaken`` (wait until another process has
    put the same chunk), or ``meet`` (wait until another process is at this point)."""
    once: bool = True
    """Only the first process that reaches the point fires it."""
    name: str = "point"


@dataclass(frozen=True)
class Event:
    """An event of a process at a failpoint."""

    at: str
    path: str
    what: str
    """``reached``, or the action that the process performed."""
    pid: int


class Failpoints:
    """A folder of failpoints, shared by all processes that are started with `environment`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()

    @property
    def environment(self) -> dict[str, str]:
        paths = [str(WORKERS), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {VARIABLE: str(self._folder), "PYTHONPATH": os.pathsep.join(paths)}

    def arm(self, *points: Point) -> None:
        armed = self._folder / "armed"
        armed.write_text(json.dumps([asdict(point) for point in points]))
        armed.rename(armed.with_suffix(".json"))

    def release(self, name: str = "point") -> None:
        (self._folder / f"released-{name}").touch()

    def reset(self) -> None:
        for file in self._folder.iterdir():
            file.unlink()

    def events(self, what: str | None = None) -> list[Event]:
        file = self._folder / "events.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        found = [Event(**json.loads(line)) for line in lines]
        return [event for event in found if what in (None, event.what)]

    def await_event(self, what: str) -> Event:
        return until(lambda: next(iter(self.events(what)), None), f"a process to {what}")


def until(look: Callable[[], T | None], what: str, seconds: float = 150.0) -> T:
    """Call a function until it returns a true value, and return that value."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.02)
    raise TimeoutError(f"waited {seconds:.0f} s for {what}")


def chunk(partition: int | str, base_offset: int) -> str:
    """Return a regular expression for the path of a chunk; ``partition`` may be an expression itself."""
    number = f"{partition:05d}" if isinstance(partition, int) else partition
    return rf"^partition={number}/{base_offset:020d}\.parquet$"
