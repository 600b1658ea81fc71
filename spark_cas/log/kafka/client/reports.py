"""The delivery reports of records that a producer received together."""

from dataclasses import dataclass
from typing import Self

import pyarrow as pa
from confluent_kafka import KafkaError

from spark_cas.core.offsets import OffsetRange


@dataclass(slots=True)
class Reports:
    """The delivery reports received so far."""

    waiting: int
    """How many reports are outstanding."""
    explicit_ms: int | None
    """The timestamp of records without one, in milliseconds since 1970. None if each record has one."""
    error: KafkaError | None = None
    """The first error among the reported records."""
    _first: int | None = None
    _last: int = -1
    _unplaced: bool = False

    @classmethod
    def of(cls, records: pa.Table, time_ms: int) -> Self:
        """Return the reports of records that are not sent yet. ``time_ms`` is for records without a timestamp."""
        return cls(records.num_rows, time_ms if records.column("timestamp").null_count else None)

    @property
    def arrived(self) -> bool:
        """Return whether all reports have arrived."""
        return self.waiting == 0

    @property
    def range(self) -> OffsetRange | None:
        """Return the offsets from the first to the last record, perhaps with other records between.

        None if a report had no offset.

        The report of a duplicate has none (KIP-192).
        """
        return None if self._unplaced or self._first is None else OffsetRange(self._first, self._last + 1)

    def take(self, count: int, first: int, last: int) -> None:
        """Record that ``count`` records were acknowledged at offsets ``first`` to ``last``.

        Negative offsets are unknown.
        """
        self.waiting -= count
        if first < 0 or last < 0:
            self._unplaced = True
            return
        self._first = first if self._first is None else min(self._first, first)
        self._last = max(self._last, last)

    def take_error(self, count: int, error: KafkaError) -> None:
        """Record that ``count`` records failed."""
        self.waiting -= count
        self.error = self.error or error
