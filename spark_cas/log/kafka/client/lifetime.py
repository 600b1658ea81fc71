"""The end of what several threads may be in calls of: once it is asked for, with the last of the calls."""

from collections.abc import Callable
from threading import Lock

from confluent_kafka import KafkaError, KafkaException


class Lifetime:
    """A call is made in its context. ``end`` is called once."""

    def __init__(self, end: Callable[[], object]) -> None:
        self._end = end
        self._lock = Lock()
        self._calls = 0
        self._over = False

    def __enter__(self) -> None:
        """Raises KafkaException once the end was asked for."""
        with self._lock:
            if self._over:
                raise KafkaException(KafkaError(KafkaError._DESTROY))  # noqa: SLF001 - librdkafka names it so
            self._calls += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._calls -= 1
            ends = self._over and not self._calls
        if ends:
            self._end()

    def finish(self) -> None:
        """Let the end come: now, or with the last call that is under way. No other call begins."""
        with self:
            self._over = True
