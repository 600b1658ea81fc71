"""Partitions are added in the middle of a run: a fault that ends by itself, and is begun again where it failed."""

import random
from collections.abc import Callable
from threading import Thread

from spark_cas.core.errors import ConditionalLogError
from spark_cas.log.backend import Backend
from spark_cas.log.expanding import expand_log
from tests.chaos.faults import Undo

MOST_PARTITIONS = 5
_SECONDS = 120


class Expand:
    """The log gets one partition more, until it has `MOST_PARTITIONS`. It goes on beside the other faults."""

    def __init__(self, open_: Callable[[], Backend]) -> None:
        self._open = open_
        self._thread: Thread | None = None

    def begin(self, chance: random.Random, seconds: float) -> tuple[str, Undo] | None:
        if self._thread is not None and self._thread.is_alive():
            return None
        self._thread = Thread(target=self._expand, name="expand", daemon=True)
        self._thread.start()
        return "log", lambda: None

    def finish(self) -> None:
        """Wait for the last one, and finish what was begun: no claim is granted while an expansion is pending."""
        if self._thread is not None:
            self._thread.join(_SECONDS)
            if self._thread.is_alive():
                raise TimeoutError(f"an expansion did not end within {_SECONDS} s")
        with self._open() as log:
            pending = log.layouts().pending
            if pending is not None:
                expand_log(log, pending.partitions)

    def _expand(self) -> None:
        try:
            with self._open() as log:
                partitions = log.layout().partitions
                if partitions < MOST_PARTITIONS:
                    pending = log.layouts().pending
                    expand_log(log, pending.partitions if pending else partitions + 1)
        except ConditionalLogError:
            # Brokers were down for it, or it was too slow: it is finished by the next, or at the end.
            return
