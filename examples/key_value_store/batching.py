"""What clients ask of a shard, and how much of it is taken at once."""

import time
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Event
from typing import Generic, TypeVar

from key_value_store.rules import Writes
from key_value_store.values import Versioned
from spark_cas import ConditionalLogError
from spark_cas.core.errors import MayBeStaleError, NotLeaderError

_MOST_RECORDS = 10_000
_MOST_BYTES = 4 * 1024 * 1024

Result = TypeVar("Result")

CLOSED = "the node was closed. Nothing was written. Open it again, or ask another node."


class Asked(Generic[Result]):
    """Something that is asked of a shard, up to a deadline on the steady clock."""

    records = 0
    bytes = 0

    def __init__(self, timeout: float) -> None:
        self.deadline = time.monotonic() + timeout
        self.future: Future[Result] = Future()

    def begins(self) -> bool:
        """Whether it is still wanted; from then on it cannot be cancelled."""
        return self.future.set_running_or_notify_cancel()

    def fail(self, error: Exception) -> None:
        """It came to nothing."""
        self.future.set_exception(error)


class Reading(Asked[Versioned]):
    """A key to read."""

    def __init__(self, key: bytes, timeout: float) -> None:
        super().__init__(timeout)
        self.key = key

    def fail(self, error: Exception) -> None:
        if isinstance(error, ConditionalLogError) and not isinstance(error, NotLeaderError):
            error = MayBeStaleError(
                f"the shard's leader could not prove that it still leads: {error.message} Read again, or ask for "
                f"what may be stale."
            )
        super().fail(error)


class Writing(Asked[dict[bytes, int]]):
    """Keys to write, all or none."""

    def __init__(self, writes: Writes, timeout: float) -> None:
        super().__init__(timeout)
        self.writes = writes
        self.records = len(writes.values)
        self.largest_record = writes.largest_record()
        self.bytes = self.records * self.largest_record


class Leading(Asked[None]):
    """To become the leader."""


class Holding(Leading):
    """To become the leader, and to append nothing from then on until it is released: another thread does."""

    def __init__(self, timeout: float) -> None:
        super().__init__(timeout)
        self.released = Event()


AnyAsked = Reading | Writing | Leading


class Queue:
    """What is asked of one shard, in order."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[AnyAsked | None] = SimpleQueue()
        self._next: AnyAsked | None = None

    def put(self, asked: AnyAsked | None) -> None:
        """Ask for something; None only wakes who waits."""
        self._queue.put(asked)

    def take(self, seconds: float) -> list[AnyAsked]:
        """All that is asked for, up to what one batch may hold; nothing where nothing came within the time.

        What is no read or write comes alone.
        """
        found = self._next
        self._next = None
        try:
            found = found or self._queue.get(timeout=seconds)
            if found is None:
                return []
            taken, records, size = [found], found.records, found.bytes
            while not isinstance(found, Leading) and records < _MOST_RECORDS and size < _MOST_BYTES:
                found = self._queue.get_nowait()
                if found is None:
                    break
                if isinstance(found, Leading):
                    self._next = found
                    break
                taken.append(found)
                records += found.records
                size += found.bytes
        except Empty:
            return taken if found else []
        return taken

    def drain(self) -> list[AnyAsked]:
        """All that waits."""
        left = [self._next] if self._next else []
        self._next = None
        while not self._queue.empty():
            found = self._queue.get()
            left += [found] if found else []
        return left
