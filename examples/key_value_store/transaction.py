"""A transaction over keys of several shards: one atomic load with an expected offset for each shard.

The node leads all of these shards and pauses other appends to them. It compares the versions at the expected offsets.
If another node has appended to one of these shards since, the log rejects the whole load. For a shard without new
records the log only checks the end offset, and a demoted broker may report a stale one. The node therefore verifies
first that it still leads this shard.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from threading import Lock

from key_value_store.batching import HoldRequest
from key_value_store.records import table_of
from key_value_store.rules import Batch, Mismatch, Writes, decide
from key_value_store.shard import Shard
from spark_cas.core.errors import (
    ConditionalLogError,
    InputError,
    LayoutChangedError,
    ProgressLostError,
    RefusedError,
    StorageError,
    TruncatedError,
    UnknownOutcomeError,
)
from spark_cas.core.outcome import Appended
from spark_cas.core.plan import Layout
from spark_cas.log import clock
from spark_cas.log.backend import Backend
from spark_cas.log.deadline import within
from spark_cas.log.load.append_once import append_whole


class Transactions:
    """The transactions of one node. They run one after the other, over a separate connection to the log."""

    def __init__(self, open_log: Callable[[], Backend], layout: Layout) -> None:
        self._open_log = open_log
        self._layout = layout
        self._turn = Lock()
        self._log: Backend | None = None

    def run(self, parts: Sequence[tuple[Shard, Writes]], timeout: float) -> dict[bytes, int]:
        """Append the writes of all shards atomically, and return the new version of each key.

        Args:
            parts: The writes of each shard, ordered by shard. All nodes use this order.
            timeout: In seconds.

        Raises:
            VersionMismatchError, NotLeaderError, StorageError: Nothing was written.
            UnknownOutcomeError: The transaction may be in the log.
        """
        deadline = time.monotonic() + timeout
        if not self._turn.acquire(timeout=timeout):
            raise StorageError(
                f"the transaction waited {timeout:g} s for other transactions of this node. Nothing was written. "
                f"Retry it."
            )
        try:
            self._log = self._log or self._open_log()
            return _transact(self._log, self._layout, parts, deadline)
        except UnknownOutcomeError:
            self._close_log()
            raise
        finally:
            self._turn.release()

    def close(self) -> None:
        """Close the log after the running transaction has ended."""
        with self._turn:
            self._close_log()

    def _close_log(self) -> None:
        if self._log is not None:
            self._log.__exit__(None, None, None)
        self._log = None


def _transact(
    log: Backend, layout: Layout, parts: Sequence[tuple[Shard, Writes]], deadline: float
) -> dict[bytes, int]:
    while True:
        with ExitStack() as stack, within(max(0.0, deadline - time.monotonic())):
            for shard, _ in parts:
                stack.enter_context(_paused(shard, deadline))
            batches = {shard.number: decide([writes], shard.snapshot.version_of) for shard, writes in parts}
            mismatch = _mismatch(parts, batches)
            if mismatch is not None:
                shard, verdict = mismatch
                if shard.leadership.prove():
                    raise shard.mismatch_error(verdict, 0)
            elif all(shard.leadership.prove() for shard, _ in parts if not batches[shard.number].records):
                versions = _append(log, layout, [shard for shard, _ in parts], batches)
                if versions is not None:
                    return versions
        if time.monotonic() > deadline:
            raise parts[0][0].leadership.not_leader()


@contextmanager
def _paused(shard: Shard, deadline: float) -> Iterator[None]:
    """Become the leader of the shard, and pause its own appends during the block."""
    holding = HoldRequest(deadline - time.monotonic())
    try:
        shard.submit(holding)
        try:
            holding.future.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            holding.future.cancel()
            raise shard.leadership.not_leader() from None
        yield
    finally:
        holding.released.set()


def _mismatch(parts: Sequence[tuple[Shard, Writes]], batches: Mapping[int, Batch]) -> tuple[Shard, Mismatch] | None:
    for shard, _ in parts:
        (verdict,) = batches[shard.number].verdicts
        if isinstance(verdict, Mismatch):
            return shard, verdict
    return None


def _append(
    log: Backend, layout: Layout, shards: Sequence[Shard], batches: Mapping[int, Batch]
) -> dict[bytes, int] | None:
    """Append all records. Return None if the log rejected them, and nothing is visible; the caller may retry."""
    written = [shard for shard in shards if batches[shard.number].records]
    began_ms = clock.now_ms()
    try:
        outcomes = append_whole(
            log,
            {shard.number: table_of(batches[shard.number].records) for shard in written},
            job=f"kv-transaction-{uuid.uuid4().hex[:12]}",
            expected_offsets={shard.number: shard.snapshot.upcoming_offset for shard in shards},
            layout=layout,
        )
    except (InputError, LayoutChangedError):
        raise
    except ConditionalLogError as error:
        _step_down(shards)
        # The log may have committed the records before it lost them.
        if isinstance(error, RefusedError) and not isinstance(error, TruncatedError | ProgressLostError):
            return None
        raise UnknownOutcomeError(
            f"the outcome of the transaction is unknown: {error.message} The log contains all of its writes or none. "
            f"Read its keys to check."
        ) from None
    versions: dict[bytes, int] = {}
    for shard in written:
        outcome, records = outcomes.get(shard.number), batches[shard.number].records
        if not isinstance(outcome, Appended):  # then the log has none of the records
            _step_down(shards)
            return None
        if shard.committed(records, outcome.range, began_ms):
            shard.leadership.advance_to(outcome.range.end_offset)
        versions.update({key: outcome.range.base_offset + place for place, (key, _) in enumerate(records)})
    return versions


def _step_down(shards: Sequence[Shard]) -> None:
    for shard in shards:
        shard.leadership.term = None
        try:
            shard.leadership.follower.read()
        except ConditionalLogError:
            continue  # the status of the shard shows the error
