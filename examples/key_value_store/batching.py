"""Requests to one shard, and the queue that groups them into batches."""

import time
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Event
from typing import Generic, TypeVar

from key_value_store.errors import MayBeStaleError, NotLeaderError
from key_value_store.rules import Writes
from key_value_store.values import Versioned
from spark_cas import ConditionalLogError

_MOST_RECORDS = 10_000
_MOST_BYTES = 4 * 1024 * 1024

Result = TypeVar("Result")

CLOSED = "the node is closed. Nothing was written. Reopen it, or send the request to another node."


class ShardRequest(Generic[Result]):
    """A request to a shard, with a deadline on the monotonic clock."""

    records = 0
    bytes = 0

    def __init__(self, timeout: float) -> None:
        self.deadline = time.monotonic() + timeout
        self.future: Future[Result] = Future()

    def start(self) -> bool:
        """Start the request, and return False if its caller cancelled it. It can no longer be cancelled then."""
        return self.future.set_running_or_notify_cancel()

    def fail(self, error: Exception) -> None:
        """End the request with an error."""
        self.future.set_exception(error)


class ReadRequest(ShardRequest[Versioned]):
    """A request to read a key."""

    def __init__(self, key: bytes, timeout: float) -> None:
        super().__init__(timeout)
        self.key = key

    def fail(self, error: Exception) -> None:
        if isinstance(error, ConditionalLogError) and not isinstance(error, NotLeaderError):
            error = MayBeStaleError(
                f"the node could not verify that it still leads the shard: {error.message} Retry, or request a "
                f"stale read."
            )
        super().fail(error)


class WriteRequest(ShardRequest[dict[bytes, int]]):
    """A request to write keys, all or none."""

    def __init__(self, writes: Writes, timeout: float) -> None:
        super().__init__(timeout)
        self.writes = writes
        self.records = len(writes.values)
        self.largest_record = writes.largest_record()
        self.bytes = self.records * self.largest_record


class LeadRequest(ShardRequest[None]):
    """A request to make the node the leader."""


class HoldRequest(LeadRequest):
    """A request to make the node the leader, and to pause its appends until another thread releases it."""

    def __init__(self, timeout: float) -> None:
        super().__init__(timeout)
        self.released = Event()


AnyRequest = ReadRequest | WriteRequest | LeadRequest


class Queue:
    """The requests to one shard, in order."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[AnyRequest | None] = SimpleQueue()
        self._next: AnyRequest | None = None

    def put(self, request: AnyRequest | None) -> None:
        """Add a request. None only wakes the waiting thread."""
        self._queue.put(request)

    def take(self, seconds: float) -> list[AnyRequest]:
        """Return the next requests, at most one batch. Return none if no request arrives within ``seconds``.

        A request that neither reads nor writes is returned alone.
        """
        request = self._next
        self._next = None
        try:
            request = request or self._queue.get(timeout=seconds)
            if request is None:
                return []
            batch, records, size = [request], request.records, request.bytes
            while not isinstance(request, LeadRequest) and records < _MOST_RECORDS and size < _MOST_BYTES:
                request = self._queue.get_nowait()
                if request is None:
                    break
                if isinstance(request, LeadRequest):
                    self._next = request
                    break
                batch.append(request)
                records += request.records
                size += request.bytes
        except Empty:
            return batch if request else []
        return batch

    def drain(self) -> list[AnyRequest]:
        """Remove and return all waiting requests."""
        remaining = [self._next] if self._next else []
        self._next = None
        while not self._queue.empty():
            request = self._queue.get()
            remaining += [request] if request else []
        return remaining
