"""Series of measurements: the cost of the same work at several sizes, measured in turn.

The costs are elapsed time, and CPU time of this process and its descendants, which is useful on a busy machine too.
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
    """The cost of one run of the work."""

    seconds: float
    processor: float
    """CPU time in seconds."""


@dataclass(frozen=True, slots=True)
class Series:
    """A line of a picture: one kind of work at several sizes."""

    name: str
    """The work, and the side that does it."""
    of: str
    """The unit of the sizes: rows, partitions, chunks, executors."""
    turns: dict[int, tuple[Turn, ...]]
    """The turns by size."""

    def seconds(self) -> dict[int, float]:
        """Return the median elapsed time by size."""
        return {size: statistics.median(each.seconds for each in turns) for size, turns in self.turns.items()}

    def processor(self) -> dict[int, float]:
        """Return the median CPU time by size."""
        return {size: statistics.median(each.processor for each in turns) for size, turns in self.turns.items()}


def each(figures: Mapping[int, float]) -> dict[int, float]:
    """Return the figure per unit, by size. It includes fixed costs."""
    return {size: figure / size for size, figure in figures.items()}


def further(figures: Mapping[int, float]) -> dict[int, float]:
    """Return the figure per additional unit compared with the next smaller size, by size, without the smallest."""
    return {
        after: (figures[after] - figures[before]) / (after - before) for before, after in pairwise(sorted(figures))
    }


def measured(work: Work) -> Turn:
    """Measure one run of the work."""
    seconds = 0.0

    def timed() -> None:
        nonlocal seconds
        seconds = seconds_of(work)

    processor = processor_seconds_of(timed)
    return Turn(seconds, processor)


def in_turn(of: str, works: Mapping[str, Mapping[int, Work]], repeats: Mapping[int, int]) -> list[Series]:
    """Measure each size of each name in ``works`` in turn, and return a series for each name.

    ``repeats`` has the number of turns by size. Sizes with fewer turns leave out the last ones. First, the smallest
    size of each name runs once as a warm-up.
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
    """Print a turn of at least half a second, as progress."""
    if took.seconds >= _TOLD_SECONDS:
        print(f"{what}: {took.seconds:.2f} s, of a processor {took.processor:.2f} s", flush=True)
