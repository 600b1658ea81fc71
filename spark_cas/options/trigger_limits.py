"""How much of what there is one micro-batch of a stream takes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

Place = TypeVar("Place")


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """What the options maxOffsetsPerTrigger, minOffsetsPerTrigger and maxTriggerDelay ask for."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 0
    """How long a batch waits for ``min_offsets``."""

    def waits(self, offsets: int, since_last_batch_ms: float) -> bool:
        """Whether so few new offsets wait for more."""
        return offsets < (self.min_offsets or 0) and since_last_batch_ms < self.max_delay_ms


def share(sizes: Mapping[Place, int], limit: int) -> dict[Place, int]:
    """How much of each size is taken so that it is ``limit`` in sum, or all where there is no more.

    In proportion to the sizes, but at least one of each that is not empty where the limit allows: nothing starves
    beside a large neighbour. Where it does not, the largest come first.
    """
    taken = dict.fromkeys(sizes, 0)
    total = sum(sizes.values())
    if total <= limit:
        return dict(sizes)
    largest_first = sorted((place for place in sizes if sizes[place]), key=lambda place: -sizes[place])
    for place in largest_first[:limit]:
        taken[place] = 1
    spare, rest = limit - sum(taken.values()), total - len(largest_first)
    if spare:
        for place in largest_first:
            taken[place] += (sizes[place] - 1) * spare // rest
    for place in largest_first[: limit - sum(taken.values())]:
        taken[place] += 1
    return taken
