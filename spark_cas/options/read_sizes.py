"""The sizes of a read: the offsets of each task and of each micro-batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from spark_cas.core.offsets import OffsetRange
from spark_cas.options.read_range import TopicPartition

Place = TypeVar("Place")
Ranges = Mapping[TopicPartition, OffsetRange]
Task = tuple[tuple[TopicPartition, OffsetRange], ...]
"""Ranges of one topic, at least one, that a task reads in sequence."""

_ALONE = 32
"""Up to this many ranges, each range has its own task, as in Spark's own source. More ranges never use fewer
tasks."""
_SHARED_OFFSETS = 10_000
"""A number of records of a few hundred bytes that a task reads faster than it starts."""


@dataclass(frozen=True, slots=True)
class Splitting:
    """The values of the options minPartitions and maxRecordsPerPartition."""

    min_partitions: int | None = None
    """The minimum number of tasks, if there are as many offsets."""
    max_records: int | None = None
    """The maximum number of offsets per task. A task may read fewer records, because some offsets hold none."""

    def split(self, ranges: Ranges) -> tuple[Task, ...]:
        """Return the tasks of a read, which cover each range exactly once, in order within each partition.

        By default each partition is one task, and partitions with few offsets share a task if there are many
        partitions. If an option requests more tasks, larger partitions are split into more tasks. Tasks never have
        empty ranges.
        """
        total = sum(map(len, ranges.values()))
        parts = [(at, part) for at, each in ranges.items() for part in each.split(self._pieces(len(each), total))]
        if len(parts) <= _ALONE or self != Splitting():
            return tuple((each,) for each in parts)
        return _shared(parts)

    def _pieces(self, size: int, total: int) -> int:
        """Return the number of tasks for a range, rounded up so that the total reaches the minimum."""
        by_count = -(-size * (self.min_partitions or 1) // max(1, total))
        by_size = -(-size // (self.max_records or max(1, size)))
        return max(1, by_count, by_size)


def _shared(parts: Sequence[tuple[TopicPartition, OffsetRange]]) -> tuple[Task, ...]:
    most = len(parts) // _ALONE
    tasks: list[list[tuple[TopicPartition, OffsetRange]]] = []
    room = 0
    for at, part in parts:
        room -= len(part)
        if room < 0 or tasks[-1][0][0].topic != at.topic or len(tasks[-1]) == most:
            tasks.append([])
            room = _SHARED_OFFSETS - len(part)
        tasks[-1].append((at, part))
    return tuple(map(tuple, tasks))


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
