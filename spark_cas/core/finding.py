"""A problem of a log, its brokers or its store, as `spark-cas doctor` reports it."""

from dataclasses import dataclass, field
from enum import StrEnum


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
