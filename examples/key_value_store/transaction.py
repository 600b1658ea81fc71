"""A transaction over keys of several shards: one whole load at the offsets that all of them were applied up to.

The node leads all of them, and appends nothing else to any meanwhile. So the expected offsets are those at which the
versions were compared, and a shard that another node has appended to since refuses the load as a whole. A shard that
gets no record is only looked at, and a broker that was deposed may tell an old end: that this node leads it is proven
before.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from threading import Lock

from key_value_store.batching import Holding
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
from spark_cas.log.load.append_once_whole import append_whole
from spark_cas.log.patience import within


class Transactions:
    """Those of one node, one after the other, over a log of their own."""

    def __init__(self, open_log: Callable[[], Backend], layout: Layout) -> None:
        self._open_log = open_log
        self._layout = layout
        self._turn = Lock()
        self._log: Backend | None = None

    def run(self, parts: Sequence[tuple[Shard, Writes]], timeout: float) -> dict[bytes, int]:
        """Append each shard's writes in one step with the others, or nothing; return each key's new version.

        ``parts`` are in the order of their shards, as in every node. Raises VersionMismatchError, NotLeaderError,
        StorageError: nothing was written; UnknownOutcomeError.
        """
        deadline = time.monotonic() + timeout
        if not self._turn.acquire(timeout=timeout):
            raise StorageError(
                f"other transactions of this node took all of the {timeout:g} s. Nothing was written. Try again."
            )
        try:
            self._log = self._log or self._open_log()
            return _transact(self._log, self._layout, parts, deadline)
        except UnknownOutcomeError:
            self._let_go()
            raise
        finally:
            self._turn.release()

    def close(self) -> None:
        """Let go of the log, once what is at work has come to its end."""
        with self._turn:
            self._let_go()

    def _let_go(self) -> None:
        if self._log is not None:
            self._log.__exit__(None, None, None)
        self._log = None


def _transact(
    log: Backend, layout: Layout, parts: Sequence[tuple[Shard, Writes]], deadline: float
) -> dict[bytes, int]:
    while True:
        with ExitStack() as held, within(max(0.0, deadline - time.monotonic())):
            for shard, _ in parts:
                held.enter_context(_held(shard, deadline))
            batches = {shard.number: decide([writes], shard.snapshot.version_of) for shard, writes in parts}
            mismatch = _mismatch(parts, batches)
            if mismatch is not None:
                shard, found = mismatch
                if shard.leadership.prove():
                    raise shard.mismatch(found, 0)
            elif all(shard.leadership.prove() for shard, _ in parts if not batches[shard.number].records):
                versions = _append(log, layout, [shard for shard, _ in parts], batches)
                if versions is not None:
                    return versions
        if time.monotonic() > deadline:
            raise parts[0][0].leadership.not_leader()


@contextmanager
def _held(shard: Shard, deadline: float) -> Iterator[None]:
    """The shard is led by this node, and appends nothing by itself."""
    holding = Holding(deadline - time.monotonic())
    try:
        shard.ask(holding)
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
    """Append all of it; None where another node came in between: nothing is visible, and it may be tried anew."""
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
        # What is there no more may have been committed before it was lost.
        if isinstance(error, RefusedError) and not isinstance(error, TruncatedError | ProgressLostError):
            return None
        raise UnknownOutcomeError(
            f"it is not known whether the transaction is in the log, whole, or is not: {error.message} Read its keys "
            f"to find out."
        ) from None
    versions: dict[bytes, int] = {}
    for shard in written:
        outcome, records = outcomes.get(shard.number), batches[shard.number].records
        if not isinstance(outcome, Appended):  # then none is
            _step_down(shards)
            return None
        if shard.committed(records, outcome.range, began_ms):
            shard.leadership.go_on_at(outcome.range.end_offset)
        versions.update({key: outcome.range.base_offset + place for place, (key, _) in enumerate(records)})
    return versions


def _step_down(shards: Sequence[Shard]) -> None:
    for shard in shards:
        shard.leadership.term = None
        try:
            shard.leadership.follower.look()
        except ConditionalLogError:
            continue  # its own thread tells of it
