"""The meaning of each client error for an append. A code that is not in the table is unknown."""

from collections.abc import Set as AbstractSet
from enum import Enum

from confluent_kafka import KafkaError

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
_TOO_OLD = "the broker is too old for this"
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
    **dict.fromkeys(TOO_OLD, _TOO_OLD),
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

_NO_COORDINATOR = "the brokers answer, but the coordinator of transactions or of consumer groups does not"


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
        return _NO_COORDINATOR
    return _REFUSED.get(code) or _NO_CONNECTION.get(code) or KafkaError(code).name()


PARTITION_EOF: int = KafkaError._PARTITION_EOF
"""Not an error: the reader is at the end of the committed records."""

NO_RIGHT_TO_GROUP: int = KafkaError.GROUP_AUTHORIZATION_FAILED
"""Not an error for a reader: its client requests the coordinator of a group that it never uses."""

OUT_OF_RANGE: int = KafkaError._AUTO_OFFSET_RESET
"""The partition does not have the offset that a reader requests."""

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
    "Check the user, the password and option kafka.sasl.mechanism, and that option kafka.security.protocol is that "
    "of the brokers' listener."
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
