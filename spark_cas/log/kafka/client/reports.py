"""What the brokers reported of records that were handed to a producer together."""

from dataclasses import dataclass

from confluent_kafka import KafkaError

from spark_cas.core.offsets import OffsetRange


@dataclass(slots=True)
class Reports:
    """What became of the records so far."""

    waiting: int
    """Reports that are still to come."""
    given_ms: int | None
    """The time of the records that had none, milliseconds since 1970; None where each had one."""
    error: KafkaError | None = None
    """The first that came, of any of the records that are reported."""
    _first: int | None = None
    _last: int = -1
    _unplaced: bool = False

    @property
    def came(self) -> bool:
        """Whether it is known of each record."""
        return self.waiting == 0

    @property
    def range(self) -> OffsetRange | None:
        """From the first record to behind the last, others perhaps among them; None when a report had no offset.

        A duplicate's has none (KIP-192).
        """
        return None if self._unplaced or self._first is None else OffsetRange(self._first, self._last + 1)

    def take(self, count: int, first: int, last: int) -> None:
        """So many records were acknowledged, from the one offset to the other; a negative one is none."""
        self.waiting -= count
        if first < 0 or last < 0:
            self._unplaced = True
            return
        self._first = first if self._first is None else min(self._first, first)
        self._last = max(self._last, last)

    def take_error(self, count: int, error: KafkaError) -> None:
        """So many records failed."""
        self.waiting -= count
        self.error = self.error or error
