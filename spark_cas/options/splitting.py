"""How the offsets of a read are divided among tasks."""

from collections.abc import Mapping
from dataclasses import dataclass

from spark_cas.core.offsets import OffsetRange
from spark_cas.options.topic_partitions import TopicPartition

Ranges = Mapping[TopicPartition, OffsetRange]


@dataclass(frozen=True, slots=True)
class Splitting:
    """What the options minPartitions and maxRecordsPerPartition ask for."""

    min_partitions: int | None = None
    """At least so many tasks, where there are as many offsets to read."""
    max_records: int | None = None
    """At most so many offsets for a task. Offsets may hold no record, so its records may be fewer."""

    def split(self, ranges: Ranges) -> tuple[tuple[TopicPartition, OffsetRange], ...]:
        """The tasks of a read: ranges that are not empty and cover the given ones once, each partition's in order.

        A partition is one task unless more are asked for; a larger one is then split more often.
        """
        total = sum(map(len, ranges.values()))
        return tuple((at, part) for at, each in ranges.items() for part in each.split(self._pieces(len(each), total)))

    def _pieces(self, size: int, total: int) -> int:
        """Into how many tasks a range goes. Rounded up, so that in sum they are no fewer than asked for."""
        by_count = -(-size * (self.min_partitions or 1) // max(1, total))
        by_size = -(-size // (self.max_records or max(1, size)))
        return max(1, by_count, by_size)
