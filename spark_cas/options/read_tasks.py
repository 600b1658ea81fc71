"""How the offsets of a read are divided among tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_cas.core.offsets import OffsetRange
from spark_cas.options.topic_partitions import TopicPartition

Ranges = Mapping[TopicPartition, OffsetRange]
Task = tuple[tuple[TopicPartition, OffsetRange], ...]
"""Ranges of one topic, at least one, that a task reads one after the other."""

_ALONE = 32
"""Up to so many ranges have a task each, as with Spark's own source, and more ranges have no fewer tasks."""
_SHARED_OFFSETS = 10_000
"""A task takes longer to begin than to read so many records of some hundred bytes."""


@dataclass(frozen=True, slots=True)
class Splitting:
    """What the options minPartitions and maxRecordsPerPartition ask for."""

    min_partitions: int | None = None
    """At least so many tasks, where there are as many offsets to read."""
    max_records: int | None = None
    """At most so many offsets for a task. Offsets may hold no record, so its records may be fewer."""

    def split(self, ranges: Ranges) -> tuple[Task, ...]:
        """The tasks of a read: ranges that are not empty and cover the given ones once, each partition's in order.

        A partition is one task unless more are asked for; a larger one is then split more often. Unless anything is
        asked for, of many partitions those with few offsets share tasks.
        """
        total = sum(map(len, ranges.values()))
        parts = [(at, part) for at, each in ranges.items() for part in each.split(self._pieces(len(each), total))]
        if len(parts) <= _ALONE or self != Splitting():
            return tuple((each,) for each in parts)
        return _shared(parts)

    def _pieces(self, size: int, total: int) -> int:
        """Into how many tasks a range goes. Rounded up, so that in sum they are no fewer than asked for."""
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
