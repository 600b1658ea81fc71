"""One process's part of the store: it follows its shards, and leads those that the log says it leads."""

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from key_value_store.batching import Leading, Reading, Writing
from key_value_store.hint import preferred_node
from key_value_store.records import LEADER_KEY
from key_value_store.rules import Writes
from key_value_store.shard import Shard
from key_value_store.snapshot import Snapshot
from key_value_store.transaction import Transactions
from key_value_store.values import ANY, Expected, ShardStatus, Versioned
from spark_cas import open_log
from spark_cas.core.errors import (
    LayoutChangedError,
    MayBeStaleError,
    NotLeaderError,
    StorageError,
    UnknownOutcomeError,
)
from spark_cas.core.expansion import Layouts
from spark_cas.core.partitioner import DEFAULT_PARTITIONER, partition_of_key
from spark_cas.log.backend import Backend
from spark_cas.log.open import answered_before, parse_address

REQUEST_SECONDS = 30.0


class Node:
    """A node of the store. Use it as a context manager; many threads may call it at once.

    A shard is led by the node that its newest leader record in the log names. Where there is none yet, the node
    that rendezvous hashing over ``nodes`` prefers is to begin. These are hints: what is appended is decided by the
    log alone.
    """

    def __init__(
        self,
        log: str | Callable[[], Backend],
        *,
        address: str,
        folder: Path | str,
        nodes: Collection[str] = (),
        shards: Collection[int] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """A node over a log that exists.

        ``log`` is an address as `open_log` takes it, with its ``settings``, or what opens the log: it is called once
        for each shard. ``address`` is the node's own name, by which others are told of it. ``folder`` is where the
        snapshots lie, and nobody else's; it is made unless it is there. ``nodes`` are the addresses of all nodes,
        the same at each. ``shards`` are those that the node follows, and may lead: all, unless they are given.

        Raises ValueError for a shard that the log does not have, LogNotFoundError, LogNotSharedError when the folder
        has snapshots of another log, StorageError.
        """
        self._address = address
        self._shards: dict[int, Shard] = {}
        with log() if callable(log) else open_log(log, settings) as opened:
            layout, layouts = opened.layout(), opened.layouts()
        _refuse_expanded(layouts)
        self._partitioner = layouts.partitioner or DEFAULT_PARTITIONER
        opens = log if callable(log) else partial(open_log, answered_before(parse_address(log, settings)))
        self._transactions = Transactions(opens, layout)
        self._partitions = layout.partitions
        numbers = sorted(range(layout.partitions) if shards is None else set(shards))
        for number in numbers:
            layout.require(number)
        Path(folder).mkdir(parents=True, exist_ok=True)
        everybody = {*nodes, address}
        try:
            for number in numbers:
                snapshot = Snapshot(Path(folder), layout.log_id, number)
                self._shards[number] = Shard(
                    opens, layout, number, snapshot, address=address, preferred=preferred_node(number, everybody)
                )
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop following. Requests that wait end in errors; the snapshots stay."""
        for shard in self._shards.values():
            shard.close()
        self._transactions.close()

    def shard_of(self, key: bytes) -> int:
        """Return the shard of a key, as `spark_cas.route` places it: by the partitioner of the log."""
        return partition_of_key(key, self._partitions, self._partitioner)

    def get(self, key: bytes, *, stale: bool = False, timeout: float = REQUEST_SECONDS) -> Versioned:
        """What a key holds.

        A leader proves first that it still leads, so every write that was acknowledged before the call is seen
        (linearizable). With ``stale`` any node that follows the shard answers from what it has, at once: some prefix
        of the shard's writes. ``timeout`` is in seconds.

        Raises NotLeaderError, whose ``leader`` is to be asked; MayBeStaleError when the proof did not come in time.
        """
        shard = self._shard_of(key)
        if stale:
            return shard.peek(key)
        asked = Reading(key, timeout)
        shard.ask(asked)
        try:
            return asked.future.result(timeout)
        except TimeoutError:
            asked.future.cancel()
            raise MayBeStaleError(
                f"shard {shard.number}: within {timeout:g} s it was not proven that this node still leads it. Read "
                f"again, or ask for what may be stale."
            ) from None

    def put(
        self, key: bytes, value: bytes, *, expected_version: Expected = ANY, timeout: float = REQUEST_SECONDS
    ) -> int:
        """Set a key, if it has the expected version, and return its new version once that is committed.

        Raises VersionMismatchError and NotLeaderError: nothing was written; UnknownOutcomeError: it may have been, or
        may yet be. What the log raises when it cannot be used (StorageError): nothing was written.
        """
        return self._await(self._asked({key: value}, {key: expected_version}, timeout), timeout)[key]

    def delete(self, key: bytes, *, expected_version: Expected = ANY, timeout: float = REQUEST_SECONDS) -> int:
        """Remove a key, if it has the expected version, and return the offset of the deletion. Raises as `put`."""
        return self._await(self._asked({key: None}, {key: expected_version}, timeout), timeout)[key]

    def submit(
        self, writes: Mapping[bytes, bytes | None], expected_versions: Mapping[bytes, Expected] | None = None
    ) -> "Future[dict[bytes, int]]":
        """Begin to write keys of one shard, all or none, and return at once; the result is each one's new version.

        As `transact`, but all keys have to be of one shard: ValueError else. The future ends as `put` raises, and can
        be cancelled until the write is on its way. What is called back when it is done runs in the shard's thread: it
        is to be short, and to ask this node for nothing.
        """
        return self._asked(writes, expected_versions or {}, REQUEST_SECONDS).future

    def transact(
        self,
        writes: Mapping[bytes, bytes | None],
        expected_versions: Mapping[bytes, Expected] | None = None,
        *,
        timeout: float = REQUEST_SECONDS,
    ) -> dict[bytes, int]:
        """Write keys of any shards in one step, if the expected versions hold, or none of them; None deletes a key.

        Returns each key's new version. ``expected_versions`` may name keys that are not written: they still have that
        version in the very step; on Kafka, where nothing of their shard is written, a moment before it. Where keys
        are of several shards the node has to lead all of them, and takes over those that it does not.

        Raises as `put` does; ValueError without writes.
        """
        expected = expected_versions or {}
        parts = self._parts(writes, expected)
        if len(parts) == 1:
            return self._await(self._asked(writes, expected, timeout), timeout)
        return self._transactions.run(parts, timeout)

    def lead(self, shard: int, *, timeout: float = REQUEST_SECONDS) -> None:
        """Become the shard's leader, and return once it is: for who found that the leader does not answer.

        It waits until the term of another node is two seconds old, so that no two depose each other in a loop.

        Raises NotLeaderError when another node took over meanwhile; StorageError.
        """
        asked = Leading(timeout)
        self._shards[shard].ask(asked)
        try:
            asked.future.result(timeout)
        except TimeoutError:
            asked.future.cancel()
            raise self._shards[shard].leadership.not_leader() from None

    def status(self) -> tuple[ShardStatus, ...]:
        """How the shards stand that this node follows, in order. Asks nobody."""
        return tuple(shard.status() for shard in self._shards.values())

    def _shard_of(self, key: bytes) -> Shard:
        number = self.shard_of(key)
        shard = self._shards.get(number)
        if shard is None:
            raise NotLeaderError(
                f"shard {number} is not followed by node {self._address}. Nothing was written. Ask another node."
            )
        return shard

    def _parts(
        self, writes: Mapping[bytes, bytes | None], expected: Mapping[bytes, Expected]
    ) -> list[tuple[Shard, Writes]]:
        """By shard, in their order."""
        if not writes or LEADER_KEY in writes:
            msg = f"a write has at least one key, and none that is {LEADER_KEY!r}, which names leaders"
            raise ValueError(msg)
        if len(writes) == 1 and writes.keys() >= expected.keys():
            (key,) = writes
            return [(self._shard_of(key), Writes(writes, expected))]
        values: dict[int, dict[bytes, bytes | None]] = {}
        versions: dict[int, dict[bytes, Expected]] = {}
        shards = {key: self._shard_of(key) for key in {**writes, **expected}}
        for key, value in writes.items():
            values.setdefault(shards[key].number, {})[key] = value
        for key, version in expected.items():
            versions.setdefault(shards[key].number, {})[key] = version
        return [
            (self._shards[number], Writes(values.get(number, {}), versions.get(number, {})))
            for number in sorted({*values, *versions})
        ]

    def _asked(
        self, writes: Mapping[bytes, bytes | None], expected: Mapping[bytes, Expected], timeout: float
    ) -> Writing:
        parts = self._parts(writes, expected)
        if len(parts) > 1:
            msg = "all keys of one write have to be of one shard; transact takes keys of several"
            raise ValueError(msg)
        ((shard, part),) = parts
        asked = Writing(part, timeout)
        shard.ask(asked)
        return asked

    @staticmethod
    def _await(asked: Writing, timeout: float) -> dict[bytes, int]:
        try:
            return asked.future.result(timeout)
        except TimeoutError:
            if asked.future.cancel():
                raise StorageError(
                    f"the shard's leader did not come to the write within {timeout:g} s. Nothing was written."
                ) from None
            raise UnknownOutcomeError(
                f"the write was begun, and after {timeout:g} s it is not known whether it is in the log. Read the "
                f"key to find out."
            ) from None


def _refuse_expanded(layouts: Layouts) -> None:
    if layouts.expansions:
        raise LayoutChangedError(
            "partitions were added to this log since it was made, so keys lie in other shards than before. The store "
            "takes a log that keeps its partitions: copy what it holds to a new one."
        )
