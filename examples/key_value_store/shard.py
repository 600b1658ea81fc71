"""One shard at one node: a thread that follows it, and leads it in rounds, one batch in flight.

A round takes what was asked for meanwhile, appends what of it holds, and answers all of it, reads and refusals too,
once that is committed: the commit proves that the state is the newest, as of when the round began. Where there is
nothing to append, a tail barrier proves it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock, Thread

from key_value_store.batching import CLOSED, AnyAsked, Holding, Leading, Queue, Reading, Writing
from key_value_store.leading import Leadership
from key_value_store.records import Changes, table_of
from key_value_store.rules import Accepted, Batch, Mismatch, decide
from key_value_store.snapshot import Snapshot
from key_value_store.values import ShardStatus, Versioned
from spark_cas.core.errors import (
    NotLeaderError,
    RecordTooLargeError,
    StorageError,
    UnknownOutcomeError,
    VersionMismatchError,
)
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.outcome import Appended, ProgressLost, Truncated, Unknown
from spark_cas.core.plan import Layout
from spark_cas.log import clock
from spark_cas.log.backend import Backend
from spark_cas.log.patience import within

_POLL_SECONDS = 0.2
_LOOK_SECONDS = 5.0


@dataclass
class _Counts:
    writes: int = 0
    refused: int = 0
    unknown: int = 0


class Shard:
    """One shard at one node. Anybody may ask; one thread does everything else."""

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
        """Why it cannot be followed."""
        self._unled: str | None = None
        """Why this node, which is to lead it, could not the last time; None where another leads."""
        self._most_record_bytes: int | None = None
        self._proven = False
        self._closing = False
        self._asking = Lock()
        """So that nothing is asked for behind what `close` ends."""
        self._thread = Thread(target=self._run, name=f"shard-{number}", daemon=True)
        self._thread.start()

    def ask(self, asked: AnyAsked) -> None:
        """Have something done; its future tells when. Raises StorageError once the node is closed."""
        with self._asking:
            if self._closing:
                raise StorageError(CLOSED)
            self._queue.put(asked)

    def close(self) -> None:
        """End the thread once its round is over, and what waits in errors."""
        with self._asking:
            self._closing = True
            self._queue.put(None)
        self._thread.join()
        for each in self._queue.drain():
            if each.begins():
                each.fail(StorageError(CLOSED))
        self.log.__exit__(None, None, None)
        self.snapshot.close()

    def peek(self, key: bytes) -> Versioned:
        """What a key holds, as far as the shard was applied here."""
        return self.snapshot.peek(key)

    def status(self) -> ShardStatus:
        """How it stands."""
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
            error=self._unled or self._error,
        )

    def committed(self, records: Sequence[tuple[bytes, bytes | None]], at: OffsetRange, began_ms: int) -> bool:
        """Apply what was appended at these offsets; False where the snapshot fails: then the log is read later.

        ``began_ms`` is a time before the append: all that it does not know of came behind it.
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

    def mismatch(self, found: Mismatch, base_offset: int) -> VersionMismatchError:
        """The error for a write that expected another version, of a batch that begins at this offset."""
        actual = found.actual
        if found.in_batch and actual is not None:
            actual += base_offset
        has = "is absent" if actual is None else f"has version {actual}"
        expected = "absent" if found.expected is None else f"at version {found.expected}"
        return VersionMismatchError(
            f"shard {self.number}: a key was expected to be {expected}, and {has}. Nothing of this write was "
            f"appended. Read the key again, and write with the version that it has now.",
            key=found.key,
            actual=actual,
        )

    def _run(self) -> None:
        looked = 0.0
        while not self._closing:
            asked = self._queue.take(_POLL_SECONDS)
            if asked:
                self._serve(asked)
            if self.leadership.term is None or not asked:
                if time.monotonic() - looked < _POLL_SECONDS:
                    continue
                self._look()
                looked = time.monotonic()

    def _look(self) -> None:
        try:
            with within(_LOOK_SECONDS):
                self.leadership.look()
            self._error = None
            self._unled = self._unled if self.leadership.is_named else None
        except Exception as error:  # noqa: BLE001 - the thread goes on, and the status tells
            self._error = str(error)

    def _serve(self, asked: Sequence[AnyAsked]) -> None:
        now = time.monotonic()
        begun = [each for each in asked if each.begins()]
        live = [each for each in begun if each.deadline > now]
        for each in begun:
            if each.deadline <= now:
                late = f"shard {self.number}: it was not come to in time. Nothing was written. Try again."
                self._fail(each, StorageError(late))
        if not live:
            return
        deadline = max(each.deadline for each in live)
        try:
            with within(deadline - now):
                if isinstance(live[0], Leading):
                    self._lead(live[0])
                else:
                    self._round(live, deadline)
            self._unled = None
        except Exception as error:  # noqa: BLE001 - whoever asked is told
            self.leadership.term = None
            self._unled = None if isinstance(error, NotLeaderError) else str(error)
            for each in live:
                self._fail(each, error)

    def _lead(self, asked: Leading) -> None:
        self._prepare()
        self.leadership.take_over(asked.deadline)
        asked.future.set_result(None)
        if isinstance(asked, Holding):
            # By a thread of this process, which releases it whatever comes.
            asked.released.wait()

    def _prepare(self) -> None:
        """Before the first append: whether the log can be written to, and how large a record may be."""
        if not self._proven:
            self._most_record_bytes = self.log.preflight().max_record_bytes
            self._proven = True

    def _round(self, asked: Sequence[AnyAsked], deadline: float) -> None:
        self._prepare()
        writing = [each for each in asked if isinstance(each, Writing) and not self._too_large(each)]
        while True:
            term = self.leadership.require(deadline)
            batch = decide([each.writes for each in writing], self.snapshot.version_of)
            if not batch.records:
                if self.leadership.prove():
                    self._answer_writes(writing, batch, self.snapshot.upcoming_offset)
                    self._answer_reads(asked)
                    return
                continue
            began_ms = clock.now_ms()
            outcome = term.append(table_of(batch.records))
            if isinstance(outcome, Appended):
                applied = self.committed(batch.records, outcome.range, began_ms)
                self._answer_writes(writing, batch, outcome.range.base_offset)
                if not applied:
                    raise StorageError(f"what was committed could not be applied here: {self._error}")
                self._answer_reads(asked)
                return
            if isinstance(outcome, Unknown | Truncated | ProgressLost):
                # What is there no more may have been committed before it was lost.
                cause = outcome.cause if isinstance(outcome, Unknown) else "the log has lost records that were seen"
                raise UnknownOutcomeError(
                    f"shard {self.number}: it is not known whether the write is in the log: {cause}. Read the key to "
                    f"find out."
                )
            self.leadership.refused(outcome)

    def _too_large(self, each: Writing) -> bool:
        most, size = self._most_record_bytes, each.largest_record
        if most is None or size <= most:
            return False
        self._fail(
            each,
            RecordTooLargeError(
                f"a record of {size} bytes was to be written, and the log takes records of at most {most} bytes. "
                f"Nothing was written. Raise that limit of the log or make the value smaller."
            ),
        )
        return True

    def _answer_writes(self, writing: Sequence[Writing], batch: Batch, base_offset: int) -> None:
        for each, verdict in zip(writing, batch.verdicts, strict=True):
            if isinstance(verdict, Accepted):
                first = base_offset + verdict.first
                each.future.set_result({key: first + at for at, key in enumerate(each.writes.values)})
            else:
                self._fail(each, self.mismatch(verdict, base_offset))

    def _answer_reads(self, asked: Sequence[AnyAsked]) -> None:
        for each in asked:
            if isinstance(each, Reading):
                each.future.set_result(self.snapshot.get(each.key))

    def _fail(self, each: AnyAsked, error: Exception) -> None:
        if each.future.done():
            return
        if isinstance(each, Writing):
            self._counts.unknown += isinstance(error, UnknownOutcomeError)
            self._counts.refused += not isinstance(error, UnknownOutcomeError)
        each.fail(error)
