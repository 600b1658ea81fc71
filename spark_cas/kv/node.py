"""One process's part of the store: it follows its shards, and leads those that the log says it leads."""

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Self

from spark_cas.kv.values import ANY, Expected, ShardStatus, Versioned
from spark_cas.log.backend import Backend


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
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop following. Requests that wait end in errors; the snapshots stay."""

    def shard_of(self, key: bytes) -> int:
        """The shard of a key: Kafka's murmur2, as its Java client and `spark_cas.route` place it."""
        raise NotImplementedError

    def get(self, key: bytes, *, stale: bool = False, timeout: float = 30.0) -> Versioned:
        """What a key holds.

        A leader proves first that it still leads, so every write that was acknowledged before the call is seen
        (linearizable). With ``stale`` any node that follows the shard answers from what it has, at once: some prefix
        of the shard's writes. ``timeout`` is in seconds.

        Raises NotLeaderError, whose ``leader`` is to be asked; MayBeStaleError when the proof did not come in time.
        """
        raise NotImplementedError

    def put(self, key: bytes, value: bytes, *, expected_version: Expected = ANY, timeout: float = 30.0) -> int:
        """Set a key, if it has the expected version, and return its new version once that is committed.

        Raises VersionMismatchError and NotLeaderError: nothing was written; UnknownOutcomeError: it may have been, or
        may yet be. What the log raises when it cannot be used (StorageError): nothing was written.
        """
        raise NotImplementedError

    def delete(self, key: bytes, *, expected_version: Expected = ANY, timeout: float = 30.0) -> int:
        """Remove a key, if it has the expected version, and return the offset of the deletion. Raises as `put`."""
        raise NotImplementedError

    def submit(
        self, writes: Mapping[bytes, bytes | None], expected_versions: Mapping[bytes, Expected] | None = None
    ) -> "Future[dict[bytes, int]]":
        """Begin to write keys of one shard, all or none, and return at once; the result is each one's new version.

        As `transact`, but all keys have to be of one shard: ValueError else. The future ends as `put` raises, and can
        be cancelled until the write is on its way.
        """
        raise NotImplementedError

    def transact(
        self,
        writes: Mapping[bytes, bytes | None],
        expected_versions: Mapping[bytes, Expected] | None = None,
        *,
        timeout: float = 30.0,
    ) -> dict[bytes, int]:
        """Write keys of any shards in one step, if the expected versions hold, or none of them; None deletes a key.

        Returns each key's new version. ``expected_versions`` may name keys that are not written: they still have that
        version in the very step. Where keys are of several shards the node has to lead all of them, and takes over
        those that it does not.

        Raises as `put` does; ValueError without writes.
        """
        raise NotImplementedError

    def lead(self, shard: int, *, timeout: float = 30.0) -> None:
        """Become the shard's leader, and return once it is: for who found that the leader does not answer.

        It waits until the term of another node is two seconds old, so that no two depose each other in a loop.

        Raises NotLeaderError when another node took over meanwhile; StorageError.
        """
        raise NotImplementedError

    def status(self) -> tuple[ShardStatus, ...]:
        """How the shards stand that this node follows, in order. Asks nobody."""
        raise NotImplementedError
