"""Problems of a log, its brokers or its store, as `spark-cas doctor` reports them; open transactions (KIP-664)."""

from dataclasses import dataclass, field
from enum import StrEnum

from spark_cas.core.errors import OptionError

_MARKER_MS = 60_000
"""The time in which a coordinator notices a timeout and writes its markers."""


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
    since_ms: int | None
    """When it began according to its coordinator, in milliseconds since 1970; None if no coordinator reports it.

    Producers set the timestamps of records, so those do not show the age of a transaction.
    """
    timeout_ms: int | None
    """The time after which its coordinator aborts it. If the coordinator is not known, the brokers' maximum; None if
    this is not known either."""
    orphaned: bool = False
    """Whether no coordinator lists it for its partitions. Then it hangs, or this user may not describe it."""

    def is_overdue(self, now_ms: int) -> bool:
        """Return whether the transaction is open for longer than its timeout. False if this is not known."""
        if self.since_ms is None or self.timeout_ms is None:
            return False
        return now_ms - self.since_ms > self.timeout_ms

    def watch_ms(self) -> int:
        """Return the time after which an orphaned transaction hangs if it is still open.

        Raises:
            OptionError: The brokers' maximum is not known.
        """
        if self.timeout_ms is None:
            raise OptionError(
                f"the transaction of producer {self.producer_id} may still end, and transaction.max.timeout.ms of a "
                f"broker cannot be read. Nothing was changed. Grant the ACL DescribeConfigs on the cluster, then "
                f"try again."
            )
        return self.timeout_ms + _MARKER_MS

    def is_same(self, other: "OpenTransaction", topic: str, partition: int) -> bool:
        """Return whether this is another's transaction, with the same first record in a partition."""
        if self.orphaned and other.orphaned:
            producers = [(each.producer_id, each.producer_epoch) for each in (self, other)]
            return producers[0] == producers[1] and self.at(topic, partition) == other.at(topic, partition)
        return self == other

    def at(self, topic: str, partition: int) -> HeldPartition | None:
        """Return the records of the transaction in a partition; None if it has none there."""
        return next((each for each in self.partitions if (each.topic, each.partition) == (topic, partition)), None)

    def holds(self, topic: str, partition: int) -> bool:
        return self.at(topic, partition) is not None


class Severity(StrEnum):
    """How urgent a finding is."""

    INFO = "info"
    """No action is necessary."""
    WARNING = "warning"
    """A promise is weaker than it could be, or a job needs attention."""
    ERROR = "error"
    """Writers or readers are blocked, or rows can be lost or duplicated."""


class Problem(StrEnum):
    """The stable name of each kind of finding."""

    HANGING_TRANSACTION = "HANGING_TRANSACTION"
    OPEN_TRANSACTION = "OPEN_TRANSACTION"
    TRANSACTIONS_UNREADABLE = "TRANSACTIONS_UNREADABLE"
    UNDECIDED_LOAD = "UNDECIDED_LOAD"
    LOAD_LOCK = "LOAD_LOCK"
    UNFINISHED_EXPANSION = "UNFINISHED_EXPANSION"
    UNFINISHED_JOB = "UNFINISHED_JOB"
    LEDGER_EXPIRES = "LEDGER_EXPIRES"
    REGISTRY_EXPIRES = "REGISTRY_EXPIRES"
    NO_LEADER = "NO_LEADER"
    REPLICAS_OUT_OF_SYNC = "REPLICAS_OUT_OF_SYNC"
    REPLICATION_FACTOR = "REPLICATION_FACTOR"
    MIN_INSYNC_REPLICAS = "MIN_INSYNC_REPLICAS"
    UNCLEAN_LEADER_ELECTION = "UNCLEAN_LEADER_ELECTION"
    RETENTION = "RETENTION"
    COMPACTION = "COMPACTION"
    OFFSETS_RETENTION = "OFFSETS_RETENTION"
    TRANSACTIONAL_ID_EXPIRATION = "TRANSACTIONAL_ID_EXPIRATION"
    TRANSACTION_TIMEOUT = "TRANSACTION_TIMEOUT"
    PARTITION_VERIFICATION = "PARTITION_VERIFICATION"
    SETTINGS_UNREADABLE = "SETTINGS_UNREADABLE"
    STORE_UNSAFE = "STORE_UNSAFE"
    STORE_UNPROBED = "STORE_UNPROBED"
    UNREADABLE = "UNREADABLE"
    UNSUPPORTED_VERSION = "UNSUPPORTED_VERSION"
    ACCELERATOR_UNUSED = "ACCELERATOR_UNUSED"


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem in one place."""

    problem: Problem
    severity: Severity
    subject: str
    """The place, such as ``topic flights`` or ``job load-1``."""
    meaning: str
    """The problem and its consequence."""
    fix: str
    """The command or the change that fixes it, with ``LOG`` for the address of the log."""
    details: dict[str, object] = field(default_factory=dict)
    """Values for programs, such as a producer id. Times are in milliseconds since 1970."""
