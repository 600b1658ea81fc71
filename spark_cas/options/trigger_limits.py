"""The size of a micro-batch of a stream, and how partitions share it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

Place = TypeVar("Place")


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """The values of the options maxOffsetsPerTrigger, minOffsetsPerTrigger and maxTriggerDelay."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 0
    """The longest wait of a batch for ``min_offsets``, in milliseconds."""

    def waits(self, offsets: int, since_last_batch_ms: float) -> bool:
        """Whether a batch with this number of new offsets waits for more."""
        return offsets < (self.min_offsets or 0) and since_last_batch_ms < self.max_delay_ms


def share(sizes: Mapping[Place, int], limit: int, position: int) -> dict[Place, int]:
    """Divide the offsets of a micro-batch among partitions: ``limit`` in total, or all if there are fewer.

    Each partition with new offsets gets at least one offset. The remainder is divided in proportion to the sizes. If
    the limit is below the number of these partitions, they take turns: the partitions from ``position`` on, modulo
    the number of all partitions, get one offset each.

    Args:
        sizes: The number of new offsets of each partition, in a stable order.
        limit: The maximum number of offsets of a micro-batch.
        position: The number of offsets that the stream has read. A batch of turns increases it by ``limit``, so the
            next batch starts with later partitions, also after a restart.
    """
    if sum(sizes.values()) <= limit:
        return dict(sizes)
    used = dict.fromkeys(sizes, 0)
    places = list(sizes)
    first = position % len(places)
    waiting = [place for place in (*places[first:], *places[:first]) if sizes[place]]
    for place in waiting[:limit]:
        used[place] = 1
    spare, more = limit - sum(used.values()), sum(sizes.values()) - len(waiting)
    if spare:
        for place in waiting:
            used[place] += (sizes[place] - 1) * spare // more
        largest_first = sorted(waiting, key=lambda place: -sizes[place])
        for place in largest_first[: limit - sum(used.values())]:
            used[place] += 1
    return used
