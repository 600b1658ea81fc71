"""Timing two sides alternately, so that what disturbs the machine disturbs both."""

import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

Side = Callable[[Path], None]
"""Does the work once. It is given a path that does not exist, and whatever is there after is removed."""


NO_SCRATCH = Path("/nonexistent")
"""For sides that make no files."""


@dataclass(frozen=True, slots=True)
class Result:
    """A line of the table: ours beside the peer."""

    name: str
    ours: float
    peer: float
    unit: str
    goal: str
    """What is aimed at, in words; of seconds it is the ratio that has one."""

    @property
    def ratio(self) -> float:
        """How many times ours goes into the peer: for seconds, our speed as a share of the peer's."""
        return self.peer / self.ours


def compare(name: str, ours: Side, peer: Side, *, goal: str, scratch: Path, repeats: int) -> Result:
    """Medians of both sides over ``repeats`` counted turns, after one turn to warm up."""
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
    """How long a piece of work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
