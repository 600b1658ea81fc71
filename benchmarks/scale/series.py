"""What a series measures: what the same work takes at several sizes, all of them in turn.

By the clock, and in processor time of this process and all below it, which says something on a busy machine too.
"""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.measure import seconds_of
from benchmarks.scale.processor import processor_seconds_of

Work = Callable[[], None]

_TOLD_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Turn:
    """What one piece of work took."""

    seconds: float
    processor: float
    """Seconds of one processor."""


@dataclass(frozen=True, slots=True)
class Series:
    """A line of a picture: one kind of work, at several sizes."""

    name: str
    """What is done, and by whom."""
    of: str
    """What there is more of: rows, partitions, chunks, executors."""
    turns: dict[int, tuple[Turn, ...]]
    """By size."""

    def seconds(self) -> dict[int, float]:
        """By size, the median of the turns."""
        return {size: statistics.median(each.seconds for each in turns) for size, turns in self.turns.items()}

    def processor(self) -> dict[int, float]:
        """By size, the median of processor time."""
        return {size: statistics.median(each.processor for each in turns) for size, turns in self.turns.items()}


def each(figures: Mapping[int, float]) -> dict[int, float]:
    """By size, a figure for each of what there is, fixed costs included."""
    return {size: figure / size for size, figure in figures.items()}


def further(figures: Mapping[int, float]) -> dict[int, float]:
    """By size, but for the least, a figure for each that there is more than at the size before."""
    return {
        after: (figures[after] - figures[before]) / (after - before) for before, after in pairwise(sorted(figures))
    }


def measured(work: Work) -> Turn:
    """One turn."""
    seconds = 0.0

    def timed() -> None:
        nonlocal seconds
        seconds = seconds_of(work)

    processor = processor_seconds_of(timed)
    return Turn(seconds, processor)


def in_turn(of: str, works: Mapping[str, Mapping[int, Work]], repeats: Mapping[int, int]) -> list[Series]:
    """A series for each name in ``works``: every size of every name in turn, each as often as ``repeats`` says.

    Of the sizes that are measured least often the last turns are left out. The least size warms up, once each.
    """
    for by_size in works.values():
        by_size[min(by_size)]()
    turns: dict[str, dict[int, list[Turn]]] = {name: {size: [] for size in works[name]} for name in works}
    for turn in range(max(repeats.values())):
        for size in repeats:
            for name, by_size in works.items():
                if turn < repeats[size]:
                    turns[name][size].append(took := measured(by_size[size]))
                    tell(f"{name}, {size:,} {of}, {turn + 1} of {repeats[size]}", took)
    return [Series(name, of, {size: tuple(taken) for size, taken in turns[name].items()}) for name in works]


def tell(what: str, took: Turn) -> None:
    """Print what took so long that somebody may wait for a word."""
    if took.seconds >= _TOLD_SECONDS:
        print(f"{what}: {took.seconds:.2f} s, of a processor {took.processor:.2f} s", flush=True)
