"""The test's side of the failpoints in ``workers/sitecustomize.py``: arm them, see what happened, let go."""

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
    """What a process does that reaches a put, a step of a source, or the offsets of a state that is saved."""

    at: str
    """``before`` the put, ``staged`` (written, not yet linked), ``linked``, or ``refused`` (the name was taken); or
    ``source``, when the answer is made and Spark does not have it yet; or ``saving``, when the rows are there."""
    path: str
    """A regular expression for the path below the log's root; for the source's method; for where the rows are."""
    action: str
    """``kill``, ``stop``, ``kill_executor``, ``wait`` (for the test), ``overtaken`` (wait until it is), ``meet``."""
    once: bool = True
    """Only the first process that comes here does it."""
    name: str = "point"


@dataclass(frozen=True)
class Event:
    """A process was at such a place."""

    at: str
    path: str
    what: str
    """``reached``, or the action that was done there."""
    pid: int


class Failpoints:
    """One folder of failpoints, shared by all processes that were started with `environment`."""

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
    """What ``look`` finds, as soon as it finds something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.02)
    raise TimeoutError(f"waited {seconds:.0f} s for {what}")


def chunk(partition: int | str, base_offset: int) -> str:
    """A regular expression for the path of a chunk; ``partition`` may be an expression itself."""
    number = f"{partition:05d}" if isinstance(partition, int) else partition
    return rf"^partition={number}/{base_offset:020d}\.parquet$"
