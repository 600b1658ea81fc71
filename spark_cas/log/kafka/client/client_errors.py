"""The meaning of each client error for an append, and its text without the client's own, which may contain settings.

A code that is not in a table is unknown.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum

from confluent_kafka import KafkaError, KafkaException

from spark_cas.core.errors import AccessDeniedError, LogNotFoundError, StorageError
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec

# ruff: noqa: SLF001 - librdkafka names its own errors with an underscore; they are public


class Meaning(Enum):
    """The conclusion from a failure before or during a commit."""

    FENCED = "a newer writer holds the transactional id, or the transaction timed out"
    REFUSED = "the broker will not take this; trying again is no use"
    UNKNOWN = "nothing is proven; read the ledger under a new claim"


_FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,  # the newer producer has another id if the epochs ran out
    }
)

_CREDENTIALS = "the brokers refused the credentials"
_NO_ACL = "an ACL is missing"
_NO_TOPIC = "the topic is not there"

TOO_OLD = frozenset({KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE})
"""The brokers do not support the request."""

_REFUSED = {
    KafkaError._AUTHENTICATION: _CREDENTIALS,
    KafkaError.SASL_AUTHENTICATION_FAILED: _CREDENTIALS,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: _NO_ACL,
    KafkaError.GROUP_AUTHORIZATION_FAILED: _NO_ACL,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _NO_ACL,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: _NO_ACL,
    KafkaError.MSG_SIZE_TOO_LARGE: (
        "a record or batch is larger than the topic's max.message.bytes, or than option kafka.max.request.size"
    ),
    KafkaError.RECORD_LIST_TOO_LARGE: "a batch is larger than the broker's segments",
    KafkaError.INVALID_RECORD: "the broker refused a record, as a compacted topic does one without key",
    KafkaError.INVALID_TIMESTAMP: (
        "a record's timestamp is outside the limits message.timestamp.before.max.ms and "
        "message.timestamp.after.max.ms of the topic"
    ),
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE: "the broker does not know the compression type",
    KafkaError.OFFSET_METADATA_TOO_LARGE: "a ledger entry is larger than the broker's offset.metadata.max.bytes",
    KafkaError.POLICY_VIOLATION: "a policy of the broker refused the request",
    KafkaError.TOPIC_EXCEPTION: "the broker does not take this as the name of a topic to write to",
    KafkaError.INVALID_REPLICATION_FACTOR: "there are fewer brokers than the topic would have replicas",
    **dict.fromkeys(TOO_OLD, "the broker is too old for this"),
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        "the transaction timeout is above the broker's transaction.max.timeout.ms"
    ),
    KafkaError.UNKNOWN_TOPIC_OR_PART: "the topic or partition is not there",
    KafkaError._NOENT: _NO_TOPIC,
    KafkaError._UNKNOWN_TOPIC: _NO_TOPIC,
    KafkaError._UNKNOWN_PARTITION: "the partition is not there",
}

_NO_CONNECTION = {
    KafkaError._SSL: "the TLS connection to the brokers failed",
    KafkaError._RESOLVE: "the brokers' host name is not known here",
    KafkaError._TRANSPORT: "the connection to the brokers failed",
    KafkaError._ALL_BROKERS_DOWN: "the connection to the brokers failed",
    KafkaError._TIMED_OUT: "the brokers did not answer in time",
}

NO_COORDINATOR = frozenset({KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR})
"""Brokers answer, but the coordinator of a transactional id or group does not."""


def meaning_of(code: int) -> Meaning:
    """Return the meaning of an error code of the client or broker for an append."""
    if code in _FENCED:
        return Meaning.FENCED
    if code in _REFUSED:
        return Meaning.REFUSED
    return Meaning.UNKNOWN


def reason_of(code: int) -> str:
    """Return the reason for a failure as a phrase. For codes without one, return the client's name of the code."""
    if code in NO_COORDINATOR:
        return "the brokers answer, but the coordinator of transactions or of consumer groups does not"
    return _REFUSED.get(code) or _NO_CONNECTION.get(code) or KafkaError(code).name()


PARTITION_EOF: int = KafkaError._PARTITION_EOF
"""Not an error: the reader is at the end of the committed records."""

NO_RIGHT_TO_GROUP: int = KafkaError.GROUP_AUTHORIZATION_FAILED
"""Not an error for a reader: its client requests the coordinator of a group that it never uses."""

OUT_OF_RANGE: int = KafkaError._AUTO_OFFSET_RESET
"""The partition does not have the offset that a reader requests."""

BAD_COMPRESSION: int = KafkaError._BAD_COMPRESSION
"""A batch cannot be decompressed, or is too large for the client when it is decompressed."""

NOT_FOUND = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._NOENT, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)
"""The topic does not exist."""

TOO_LARGE: int = KafkaError.MSG_SIZE_TOO_LARGE
"""The client rejects a record because of its size, or the broker rejects its compressed batch."""

STUMBLED: int = KafkaError.UNKNOWN
"""An unexpected error in the broker. Kafka 4.1 also returns it for a commit that another producer will fence."""

NO_LEADER: int = KafkaError._NOENT
"""The client's error for a request about a partition without a known leader, for any reason."""

PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._FATAL})
"""A message or call failed because of an earlier error of its producer."""

_CHECK_CREDENTIALS = (
    "Check the user and the password. For a token, check its principal and the clock of this machine. Check option "
    "kafka.sasl.mechanism, and that option kafka.security.protocol is that of the brokers' listener."
)
_CHECK_ADDRESS = (
    "Check that the address is right, that the brokers run, and that this machine can reach them. Check that option "
    "kafka.security.protocol is that of their listener, which otherwise closes the connection."
)

UNREACHABLE = {
    KafkaError._AUTHENTICATION: _CHECK_CREDENTIALS,
    KafkaError.SASL_AUTHENTICATION_FAILED: _CHECK_CREDENTIALS,
    KafkaError._SSL: (
        "Check that the options kafka.ssl.truststore.* contain the issuer of the brokers' certificate, and that the "
        "certificate is for the hosts in the address. If brokers require a client certificate, check the options "
        "kafka.ssl.keystore.*."
    ),
    KafkaError._RESOLVE: "Check the host names in the address, and that this machine can resolve them.",
    KafkaError._TRANSPORT: _CHECK_ADDRESS,
    KafkaError._ALL_BROKERS_DOWN: _CHECK_ADDRESS,
    KafkaError._TIMED_OUT: _CHECK_ADDRESS,
}
"""The fix for each error that means no broker is reachable, the most specific error first."""


def why_unreachable(troubles: AbstractSet[int]) -> int:
    """Return the most specific error that a client recorded while a request timed out.

    Skip transient errors: the request has already waited for those.
    """
    return next((code for code in UNREACHABLE if code in troubles - PASSING), KafkaError._TIMED_OUT)


PASSING = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError._TRANSPORT,
    }
)
"""The brokers are electing a leader or coordinator. Requests are retried."""

TIMED_OUT = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    }
)
"""No answer in time, or an answer that may still change."""

_BUSY = frozenset(
    {
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError.BROKER_NOT_AVAILABLE,
    }
)
_BROKEN = frozenset(
    {KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._SSL, KafkaError.NETWORK_EXCEPTION}
)
"""No connection. If the client was connected before, the error is considered transient."""


def passes(code: int, *, reached: bool) -> bool:
    """Return whether an error is transient, so that a retry can succeed.

    ``reached`` is whether the brokers have answered before. If not, a failure to connect is treated as a wrong
    address.
    """
    return code in PASSING | TIMED_OUT | _BUSY or (reached and code in _BROKEN)


UNANSWERED = TIMED_OUT | _BROKEN | {KafkaError._TRANSPORT}
"""No broker has answered."""

STALE_LEADER = frozenset(
    {KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION}
)
"""The partition has another leader, or the same one in a new epoch, since the client fetched its metadata."""


_KIND = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional-id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
}

NOT_PERMITTED = frozenset(_KIND)
"""The codes of missing permissions."""


@dataclass(frozen=True, slots=True)
class Right:
    """One entry of an access control list."""

    operation: str
    kind: str
    """The resource type as in ``kafka-acls.sh``: topic, group, transactional-id, cluster."""
    name: str
    prefixed: bool = False
    """Whether ``name`` is a prefix."""

    def __str__(self) -> str:
        kind = self.kind.replace("-", " ")
        return f"{self.operation} on {kind}{'s that begin with' if self.prefixed else ''} {self.name}"

    @property
    def options(self) -> str:
        """Return the options of ``kafka-acls.sh`` for this permission."""
        pattern = " --resource-pattern-type prefixed" if self.prefixed else ""
        return f"--operation {self.operation} --{self.kind} {self.name}{pattern}"


def on_topic(operation: str, topic: str) -> Right:
    """Return a permission on one topic."""
    return Right(operation, "topic", topic)


def on_groups(operation: str, prefix: str) -> Right:
    """Return a permission on the groups of the ledger."""
    return Right(operation, "group", f"{prefix}/", prefixed=True)


def on_ids(operation: str, prefix: str) -> Right:
    """Return a permission on the transactional ids of writers."""
    return Right(operation, "transactional-id", f"{prefix}/", prefixed=True)


def to_claim(spec: KafkaSpec) -> tuple[Right, ...]:
    """Return the permissions to use a transactional id. Write includes Describe."""
    return (on_ids("Write", spec.prefix),)


def to_append(spec: KafkaSpec) -> tuple[Right, ...]:
    """Return the permissions to append. Read is for the ledger entry, which is an offset of the topic in a group."""
    return (
        *to_claim(spec),
        on_topic("Write", spec.topic),
        on_topic("Read", spec.topic),
        on_groups("Read", spec.prefix),
    )


def missing(code: int, rights: tuple[Right, ...]) -> str:
    """Return which of the needed permissions an error code reports as missing, and how to grant them."""
    result = [right for right in rights if right.kind == _KIND[code]]
    if not result:
        return f"the right to do that on the {_KIND[code].replace('-', ' ')} is missing"
    return lacking(*result)


def lacking(*rights: Right) -> str:
    """Return a phrase that permissions are missing, and how to grant them."""
    lines = "; ".join(f"kafka-acls.sh --add --allow-principal User:<user> {right.options}" for right in rights)
    return f"this user lacks an ACL: {' or '.join(map(str, rights))}. An administrator gives it: {lines}"


class NotAvailableError(StorageError):
    """The brokers do not support the request, because they are too old, or (`NotPermittedError`) do not permit it.

    Args:
        message: The text if the write fails.
        note: The text if the write continues without exactly once: it does not claim that no row was appended, and
            does not advise to run the job again. The default is the message.
    """

    def __init__(self, message: str, note: str = "") -> None:
        super().__init__(message)
        self.note = note or message


class NotPermittedError(NotAvailableError, AccessDeniedError):
    """The brokers deny this principal the request."""


def plain_error(error: KafkaException, doing: str, *rights: Right) -> StorageError | LogNotFoundError:
    """Return the exception for an error that the client raised outside of an append.

    ``rights`` are the permissions that the request needs. The message names the missing one.
    """
    code = error.args[0].code()
    if code in NOT_FOUND:
        return LogNotFoundError(
            f"{doing}: {reason_of(code)}. Check the topic's name and the brokers' address, or create the topic first."
        )
    if code in NOT_PERMITTED:
        lack = f"{doing}: {missing(code, rights)}."
        return NotPermittedError(f"{lack} Then run the same job again.", lack)
    if code in NO_COORDINATOR:
        return StorageError(
            f"{doing}: {reason_of(code)}. Check that topics __transaction_state and __consumer_offsets have leaders, "
            f"and that the brokers are at least as many as transaction.state.log.replication.factor and "
            f"offsets.topic.replication.factor. Then run the same job again."
        )
    if code in UNREACHABLE:
        return StorageError(f"{doing}: {reason_of(code)}. {UNREACHABLE[code]}")
    if meaning_of(code) is Meaning.REFUSED:
        reason = f"{doing}: {reason_of(code)}."
        message = f"{reason} Correct the cause, then run the same job again."
        return NotAvailableError(message, reason) if code in TOO_OLD else StorageError(message)
    return StorageError(
        f"{doing}: the brokers did not answer as they should ({reason_of(code)}). Check that they are well, then run "
        f"the same job again."
    )
