"""End an object that several threads call, after the last of the calls has returned."""

from collections.abc import Callable
from threading import Lock

from confluent_kafka import KafkaError, KafkaException


class Lifetime:
    """A context for each call. It calls ``end`` exactly once."""

    def __init__(self, end: Callable[[], object]) -> None:
        self._end = end
        self._lock = Lock()
        self._calls = 0
        self._over = False

    def __enter__(self) -> None:
        """Begin a call. Raises KafkaException after `finish`."""
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
        """Call ``end`` now, or when the last running call returns. Reject new calls."""
        with self:
            self._over = True
