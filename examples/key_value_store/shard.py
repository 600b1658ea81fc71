"""One shard at one node. Its thread follows the shard, and leads it in rounds, with one batch in flight.

A round takes the waiting requests and appends the accepted writes in one batch. After the commit it answers all
requests, including reads and rejected writes: the commit proves that the state was current when the round began. If
there is nothing to append, a tail barrier proves it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock, Thread

from key_value_store.batching import CLOSED, AnyRequest, HoldRequest, LeadRequest, Queue, ReadRequest, WriteRequest
from key_value_store.errors import NotLeaderError, VersionMismatchError
from key_value_store.leading import Leadership
from key_value_store.records import Changes, table_of
from key_value_store.rules import Accepted, Batch, Mismatch, decide
from key_value_store.snapshot import Snapshot
from key_value_store.values import ShardStatus, Versioned
from spark_cas.core.errors import RecordTooLargeError, StorageError, UnknownOutcomeError
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.outcome import Appended, ProgressLost, Truncated, Unknown
from spark_cas.core.plan import Layout
from spark_cas.log import clock
from spark_cas.log.backend import Backend
from spark_cas.log.deadline import within

_POLL_SECONDS = 0.2
_POLL_TIMEOUT_SECONDS = 5.0


@dataclass
class _Counts:
    writes: int = 0
    refused: int = 0
    unknown: int = 0


class Shard:
    """One shard at one node. Any thread may submit requests; one thread does all other work."""

    def __init__(
        self,
        open_log: Callable[[], Backend],
        layout: Layout,
        number: int,
        snapshot: Snapshot,
        *,
        address: str,
        preferred: str,
    ) -> None:
        self.number = number
        self.snapshot = snapshot
        self.log = open_log()
        self.leadership = Leadership(self.log, layout, number, snapshot, address=address, preferred=preferred)
        self._queue = Queue()
        self._counts = _Counts()
        self._error: str | None = None
        """The error of the last attempt to follow the shard."""
        self._lead_error: str | None = None
        """The error of the last attempt to lead the shard; None if another node leads it."""
        self._max_record_bytes: int | None = None
        self._preflighted = False
        self._closing = False
        self._submit_lock = Lock()
        """Prevents a request from entering the queue after `close` has emptied it."""
        self._thread = Thread(target=self._run, name=f"shard-{number}", daemon=True)
        self._thread.start()

    def submit(self, request: AnyRequest) -> None:
        """Add a request to the queue; its future has the result. Raises StorageError if the node is closed."""
        with self._submit_lock:
            if self._closing:
                raise StorageError(CLOSED)
            self._queue.put(request)

    def close(self) -> None:
        """Stop the thread after its current round. Requests that still wait end with an error."""
        with self._submit_lock:
            self._closing = True
            self._queue.put(None)
        self._thread.join()
        for each in self._queue.drain():
            if each.start():
                each.fail(StorageError(CLOSED))
        self.log.__exit__(None, None, None)
        self.snapshot.close()

    def peek(self, key: bytes) -> Versioned:
        """Return the value and version of a key in the local state, which may be stale."""
        return self.snapshot.peek(key)

    def status(self) -> ShardStatus:
        """Return the status of the shard."""
        leadership, upcoming = self.leadership, self.snapshot.upcoming_offset
        return ShardStatus(
            shard=self.number,
            leads=leadership.term is not None,
            leader=leadership.hint,
            upcoming_offset=upcoming,
            end_offset=max(upcoming, leadership.follower.end_offset),
            writes=self._counts.writes,
            refused=self._counts.refused,
            unknown=self._counts.unknown,
            error=self._lead_error or self._error,
        )

    def committed(self, records: Sequence[tuple[bytes, bytes | None]], at: OffsetRange, began_ms: int) -> bool:
        """Apply committed records of this node. Return False if the snapshot fails; the thread rereads them later.

        Args:
            records: Keys and values.
            at: The offsets of the records.
            began_ms: A time before the append, in milliseconds since 1970. The snapshot has all deletions before this
                time.
        """
        self._counts.writes += len(records)
        changes = Changes({key: (value, at.base_offset + place) for place, (key, value) in enumerate(records)})
        try:
            self.snapshot.apply(changes, at.end_offset, began_ms)
        except StorageError as error:
            self.leadership.term = None
            self._error = str(error)
            return False
        return True

    def mismatch_error(self, mismatch: Mismatch, base_offset: int) -> VersionMismatchError:
        """Return the error for a write that expected another version. Its batch is at ``base_offset``."""
        actual = mismatch.actual
        if mismatch.in_batch and actual is not None:
            actual += base_offset
        has = "is absent" if actual is None else f"has version {actual}"
        expected = "absent" if mismatch.expected is None else f"at version {mismatch.expected}"
        return VersionMismatchError(
            f"shard {self.number}: the write expected the key to be {expected}, but it {has}. Nothing was written. "
            f"Read the key, then write with its current version.",
            key=mismatch.key,
            actual=actual,
        )

    def _run(self) -> None:
        polled_at = 0.0
        while not self._closing:
            requests = self._queue.take(_POLL_SECONDS)
            if requests:
                self._serve(requests)
            if self.leadership.term is None or not requests:
                if time.monotonic() - polled_at < _POLL_SECONDS:
                    continue
                self._poll()
                polled_at = time.monotonic()

    def _poll(self) -> None:
        try:
            with within(_POLL_TIMEOUT_SECONDS):
                self.leadership.poll()
            self._error = None
            self._lead_error = self._lead_error if self.leadership.is_named else None
        except Exception as error:  # noqa: BLE001 - the thread continues, and the status shows the error
            self._error = str(error)

    def _serve(self, requests: Sequence[AnyRequest]) -> None:
        now = time.monotonic()
        started = [each for each in requests if each.start()]
        live = [each for each in started if each.deadline > now]
        for each in started:
            if each.deadline <= now:
                late = f"shard {self.number}: the request timed out in the queue. Nothing was written. Retry it."
                self._fail(each, StorageError(late))
        if not live:
            return
        deadline = max(each.deadline for each in live)
        try:
            with within(deadline - now):
                if isinstance(live[0], LeadRequest):
                    self._lead(live[0])
                else:
                    self._round(live, deadline)
            self._lead_error = None
        except Exception as error:  # noqa: BLE001 - each request gets the error
            self.leadership.term = None
            self._lead_error = None if isinstance(error, NotLeaderError) else str(error)
            for each in live:
                self._fail(each, error)

    def _lead(self, request: LeadRequest) -> None:
        self._prepare()
        self.leadership.take_over(request.deadline)
        request.future.set_result(None)
        if isinstance(request, HoldRequest):
            # The transaction's thread always releases the shard, even after an error.
            request.released.wait()

    def _prepare(self) -> None:
        """Before the first append, check that the log is writable, and read the maximum record size."""
        if not self._preflighted:
            self._max_record_bytes = self.log.preflight().max_record_bytes
            self._preflighted = True

    def _round(self, requests: Sequence[AnyRequest], deadline: float) -> None:
        self._prepare()
        writing = [each for each in requests if isinstance(each, WriteRequest) and not self._too_large(each)]
        while True:
            term = self.leadership.require(deadline)
            batch = decide([each.writes for each in writing], self.snapshot.version_of)
            if not batch.records:
                if self.leadership.prove():
                    self._answer_writes(writing, batch, self.snapshot.upcoming_offset)
                    self._answer_reads(requests)
                    return
                continue
            began_ms = clock.now_ms()
            outcome = term.append(table_of(batch.records))
            if isinstance(outcome, Appended):
                applied = self.committed(batch.records, outcome.range, began_ms)
                self._answer_writes(writing, batch, outcome.range.base_offset)
                if not applied:
                    raise StorageError(f"the batch is committed, but the snapshot failed: {self._error}")
                self._answer_reads(requests)
                return
            if isinstance(outcome, Unknown | Truncated | ProgressLost):
                # The log may have committed the records before it lost them.
                cause = outcome.cause if isinstance(outcome, Unknown) else "the log has lost records"
                raise UnknownOutcomeError(
                    f"shard {self.number}: the outcome of the write is unknown: {cause}. The write may be in the "
                    f"log. Read the key to check."
                )
            self.leadership.step_down(outcome)

    def _too_large(self, each: WriteRequest) -> bool:
        most, size = self._max_record_bytes, each.largest_record
        if most is None or size <= most:
            return False
        self._fail(
            each,
            RecordTooLargeError(
                f"the record has {size} bytes, but the log accepts at most {most} bytes. Nothing was written. "
                f"Increase the limit of the log, or use a smaller value."
            ),
        )
        return True

    def _answer_writes(self, writing: Sequence[WriteRequest], batch: Batch, base_offset: int) -> None:
        for each, verdict in zip(writing, batch.verdicts, strict=True):
            if isinstance(verdict, Accepted):
                first = base_offset + verdict.first
                each.future.set_result({key: first + at for at, key in enumerate(each.writes.values)})
            else:
                self._fail(each, self.mismatch_error(verdict, base_offset))

    def _answer_reads(self, requests: Sequence[AnyRequest]) -> None:
        for each in requests:
            if isinstance(each, ReadRequest):
                each.future.set_result(self.snapshot.get(each.key))

    def _fail(self, each: AnyRequest, error: Exception) -> None:
        if each.future.done():
            return
        if isinstance(each, WriteRequest):
            self._counts.unknown += isinstance(error, UnknownOutcomeError)
            self._counts.refused += not isinstance(error, UnknownOutcomeError)
        each.fail(error)
