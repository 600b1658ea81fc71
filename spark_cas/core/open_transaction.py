"""An open transaction that holds back readers of a log (KIP-664)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeldPartition:
    """A partition whose committed records readers see only up to an offset."""

    topic: str
    partition: int
    start_offset: int | None
    """The offset of the first record of the transaction; None if it has no record there yet."""
    coordinator_epoch: int = 0
    """The epoch of the coordinator that ended the previous transaction of the producer there."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is neither committed nor aborted."""

    producer_id: int
    producer_epoch: int
    transactional_id: str
    """Empty if no coordinator lists it, or if this user may not describe it."""
    own: bool
    """Whether a writer of this log opened it, according to its transactional id."""
    coordinator: int | None
    """The broker that coordinates the transaction; None if it is not known."""
    partitions: tuple[HeldPartition, ...]
    since_ms: int
    """When it began, or when its producer last appended, in milliseconds since 1970."""
    timeout_ms: int
    """The time after which its coordinator aborts it. If the coordinator is not known, the brokers' maximum."""
    orphaned: bool = False
    """Whether no coordinator will end it: none lists it for its partitions."""

    def is_overdue(self, now_ms: int) -> bool:
        """Return whether the transaction is open for longer than its timeout."""
        return now_ms - self.since_ms > self.timeout_ms

    def hangs(self, now_ms: int) -> bool:
        """Return whether only an administrator can end the transaction.

        A younger one may belong to a coordinator that this user may not query.
        """
        return self.orphaned and self.is_overdue(now_ms)

    def holds(self, topic: str, partition: int) -> bool:
        """Return whether the transaction has records in a partition."""
        return any((each.topic, each.partition) == (topic, partition) for each in self.partitions)
