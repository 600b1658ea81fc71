"""One node of the store. It follows its shards, and leads those for which the log names it as the leader."""

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from key_value_store.batching import LeadRequest, ReadRequest, WriteRequest
from key_value_store.errors import MayBeStaleError, NotLeaderError
from key_value_store.hint import preferred_node
from key_value_store.records import LEADER_KEY
from key_value_store.rules import Writes
from key_value_store.shard import Shard
from key_value_store.snapshot import Snapshot
from key_value_store.transaction import Transactions
from key_value_store.values import ANY, Expected, ShardStatus, Versioned
from spark_cas import open_log
from spark_cas.core.errors import LayoutChangedError, StorageError, UnknownOutcomeError
from spark_cas.core.expansion import Layouts
from spark_cas.core.partitioner import DEFAULT_PARTITIONER, partition_of_key
from spark_cas.log.backend import Backend
from spark_cas.log.open import parse_address

REQUEST_SECONDS = 30.0


class Node:
    """A node of the store. Use it as a context manager; many threads may call it at the same time.

    The leader of a shard is the node in its newest leader record. If the shard has no leader record yet, rendezvous
    hashing over ``nodes`` chooses the first leader. Both are hints. The log alone decides whether an append succeeds.
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
        """Open a node over an existing log.

        Args:
            log: An address for `open_log`, or a function that opens the log. The node calls it once for each shard.
            address: The name of this node, which other nodes see.
            folder: The folder of the snapshots, only for this node. If it does not exist, the node creates it, and
                only the current user gets access to it.
            nodes: The addresses of all nodes. They must be the same at each node.
            shards: The shards that the node follows and may lead; by default all.
            settings: The settings for `open_log`, if ``log`` is an address.

        Raises:
            ValueError: The log does not have one of ``shards``.
            LogNotFoundError: The log does not exist.
            LogNotSharedError: The folder has snapshots of another log.
            LayoutChangedError: The log has added partitions.
            StorageError: The log or the folder cannot be used.
        """
        self._address = address
        self._shards: dict[int, Shard] = {}
        with log() if callable(log) else open_log(log, settings) as opened:
            layout, layouts = opened.layout(), opened.layouts()
        _reject_expanded(layouts)
        self._partitioner = layouts.partitioner or DEFAULT_PARTITIONER
        open_shard_log = log if callable(log) else partial(open_log, parse_address(log, settings).as_reached())
        self._transactions = Transactions(open_shard_log, layout)
        self._partitions = layout.partitions
        numbers = sorted(range(layout.partitions) if shards is None else set(shards))
        for number in numbers:
            layout.require(number)
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        all_nodes = {*nodes, address}
        try:
            for number in numbers:
                snapshot = Snapshot(Path(folder), layout.log_id, number)
                self._shards[number] = Shard(
                    open_shard_log,
                    layout,
                    number,
                    snapshot,
                    address=address,
                    preferred=preferred_node(number, all_nodes),
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
        """Stop following the shards. Waiting requests end with an error; the snapshots stay."""
        for shard in self._shards.values():
            shard.close()
        self._transactions.close()

    def shard_of(self, key: bytes) -> int:
        """Return the shard of a key, by the partitioner of the log, as `spark_cas.route` does."""
        return partition_of_key(key, self._partitions, self._partitioner)

    def get(self, key: bytes, *, stale: bool = False, timeout: float = REQUEST_SECONDS) -> Versioned:
        """Return the value and version of a key.

        The leader first verifies that it still leads. The result therefore includes every write acknowledged before
        the call (linearizable).

        Args:
            key: The key.
            stale: If true, any node that follows the shard answers immediately, from a prefix of the shard's writes.
            timeout: In seconds.

        Raises:
            NotLeaderError: Another node leads; ``leader`` is its address.
            MayBeStaleError: The node could not verify in time that it still leads.
        """
        shard = self._shard_of(key)
        if stale:
            return shard.peek(key)
        request = ReadRequest(key, timeout)
        shard.submit(request)
        try:
            return request.future.result(timeout)
        except TimeoutError:
            request.future.cancel()
            raise MayBeStaleError(
                f"shard {shard.number}: this node could not verify within {timeout:g} s that it still leads. Retry, "
                f"or request a stale read."
            ) from None

    def put(
        self, key: bytes, value: bytes, *, expected_version: Expected = ANY, timeout: float = REQUEST_SECONDS
    ) -> int:
        """Set a key if it has the expected version, and return its new version after the commit.

        Raises:
            VersionMismatchError, NotLeaderError: Nothing was written.
            UnknownOutcomeError: The write may be in the log, or may still be appended.
            StorageError: The log cannot be used, and nothing was written. Other errors of the log mean the same.
        """
        return self._await(self._submit({key: value}, {key: expected_version}, timeout), timeout)[key]

    def delete(self, key: bytes, *, expected_version: Expected = ANY, timeout: float = REQUEST_SECONDS) -> int:
        """Delete a key if it has the expected version, and return the offset of the deletion.

        Raises the errors of `put`.
        """
        return self._await(self._submit({key: None}, {key: expected_version}, timeout), timeout)[key]

    def submit(
        self, writes: Mapping[bytes, bytes | None], expected_versions: Mapping[bytes, Expected] | None = None
    ) -> "Future[dict[bytes, int]]":
        """Start to write keys of one shard, all or none, and return a future with the new versions.

        The arguments are those of `transact`, but the keys must be in one shard. The future has the version of
        each key, or raises the errors of `put`. A caller can cancel it until the shard starts the write. Callbacks of
        the future run in the thread of the shard, so they must be short and must not call this node.

        Raises:
            ValueError: The keys are in several shards.
        """
        return self._submit(writes, expected_versions or {}, REQUEST_SECONDS).future

    def transact(
        self,
        writes: Mapping[bytes, bytes | None],
        expected_versions: Mapping[bytes, Expected] | None = None,
        *,
        timeout: float = REQUEST_SECONDS,
    ) -> dict[bytes, int]:
        """Write keys of any shards atomically if all expected versions match, and return the new versions.

        If the keys are in several shards, the node first takes over the shards that it does not lead.

        Args:
            writes: The new values by key. None deletes the key.
            expected_versions: The expected versions by key, also of keys that are not written. The log checks them in
                the same atomic step. On Kafka, the node checks a shard without writes shortly before this step.
            timeout: In seconds.

        Raises:
            ValueError: There are no writes.
            ConditionalLogError: The errors of `put`.
        """
        expected = expected_versions or {}
        parts = self._parts(writes, expected)
        if len(parts) == 1:
            return self._await(self._submit(writes, expected, timeout), timeout)
        return self._transactions.run(parts, timeout)

    def lead(self, shard: int, *, timeout: float = REQUEST_SECONDS) -> None:
        """Become the leader of a shard, for example because its leader does not respond.

        The call first waits until the term of the current leader is two seconds old, so that two nodes do not replace
        each other in a loop.

        Raises:
            NotLeaderError: Another node became the leader, or the time ran out.
            StorageError: The log cannot be used.
        """
        request = LeadRequest(timeout)
        self._shards[shard].submit(request)
        try:
            request.future.result(timeout)
        except TimeoutError:
            request.future.cancel()
            raise self._shards[shard].leadership.not_leader() from None

    def status(self) -> tuple[ShardStatus, ...]:
        """Return the status of each shard that this node follows, without any request to other nodes or the log."""
        return tuple(shard.status() for shard in self._shards.values())

    def _shard_of(self, key: bytes) -> Shard:
        number = self.shard_of(key)
        shard = self._shards.get(number)
        if shard is None:
            raise NotLeaderError(
                f"shard {number} is not followed by node {self._address}. Nothing was written. Send the request to "
                f"another node."
            )
        return shard

    def _parts(
        self, writes: Mapping[bytes, bytes | None], expected: Mapping[bytes, Expected]
    ) -> list[tuple[Shard, Writes]]:
        """Return the writes of each shard, ordered by shard."""
        if not writes or LEADER_KEY in writes:
            msg = f"expected at least one key, and not {LEADER_KEY!r}, which names leaders"
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

    def _submit(
        self, writes: Mapping[bytes, bytes | None], expected: Mapping[bytes, Expected], timeout: float
    ) -> WriteRequest:
        parts = self._parts(writes, expected)
        if len(parts) > 1:
            msg = "expected keys of one shard. Nothing was written. Use transact for keys of several shards"
            raise ValueError(msg)
        ((shard, part),) = parts
        request = WriteRequest(part, timeout)
        shard.submit(request)
        return request

    @staticmethod
    def _await(request: WriteRequest, timeout: float) -> dict[bytes, int]:
        try:
            return request.future.result(timeout)
        except TimeoutError:
            if request.future.cancel():
                raise StorageError(
                    f"the leader of the shard did not start the write within {timeout:g} s. Nothing was written. "
                    f"Retry it."
                ) from None
            raise UnknownOutcomeError(
                f"the write did not end within {timeout:g} s. It may be in the log, or may still be appended. Read "
                f"the key to check."
            ) from None


def _reject_expanded(layouts: Layouts) -> None:
    if layouts.expansions:
        raise LayoutChangedError(
            "partitions were added to this log, so some keys are now in other shards. The store rejects such a log, "
            "and wrote nothing. Copy the records to a new log."
        )
