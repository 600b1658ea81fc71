"""Divide the offsets of a read among Spark tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_cas.core.offsets import OffsetRange
from spark_cas.options.topic_partitions import TopicPartition

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
