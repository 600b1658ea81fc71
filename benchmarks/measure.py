"""Alternating measurements of two sides, so that other load on the machine affects both."""

import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

Side = Callable[[Path], None]
"""Does the work once. It receives a path that does not exist, which `compare` deletes afterwards."""


NO_SCRATCH = Path("/nonexistent")
"""The path for sides that create no files."""


@dataclass(frozen=True, slots=True)
class Result:
    """A line of the table: ours and the peer."""

    name: str
    ours: float
    peer: float
    unit: str
    goal: str
    """The goal as text. If the unit is seconds, it applies to the ratio."""

    @property
    def ratio(self) -> float:
        """Peer divided by ours. For seconds, this is our speed relative to the peer's."""
        return self.peer / self.ours


def compare(name: str, ours: Side, peer: Side, *, goal: str, scratch: Path, repeats: int) -> Result:
    """Return the medians of both sides over ``repeats`` counted turns, after one warm-up turn."""
    seconds: dict[str, list[float]] = {"ours": [], "peer": []}
    for turn in range(repeats + 1):
        for side, work in (("ours", ours), ("peer", peer)):
            path = scratch / f"{side}-{turn}"
            took = seconds_of(partial(work, path))
            shutil.rmtree(path, ignore_errors=True)
            if turn:
                seconds[side].append(took)
                print(f"{name}, {side}, {turn} of {repeats}: {took:.2f} s", flush=True)
    return Result(name, statistics.median(seconds["ours"]), statistics.median(seconds["peer"]), "s", goal)


def seconds_of(work: Callable[[], None]) -> float:
    """Return the duration of ``work`` in seconds."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
