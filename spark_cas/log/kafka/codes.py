"""What an error of the client means for an append: one table, and whatever it does not list is unknown."""

from enum import Enum

from confluent_kafka import KafkaError

# ruff: noqa: SLF001 - librdkafka names its own errors with an underscore; they are public


class Meaning(Enum):
    """What a failure before the commit, or of it, allows to conclude."""

    FENCED = "a newer writer holds the transactional id, or the transaction timed out"
    REFUSED = "the broker will not take this; trying again is no use"
    UNKNOWN = "nothing is proven; read the ledger under a new claim"


_FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.INVALID_TXN_STATE,
        KafkaError.TRANSACTION_COORDINATOR_FENCED,
    }
)

_REFUSED = {
    KafkaError._AUTHENTICATION: "the broker refused the credentials",
    KafkaError.SASL_AUTHENTICATION_FAILED: "the broker refused the credentials",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "an ACL is missing: Write, Read and Describe on the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "an ACL is missing: Read on groups with the prefix",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "an ACL is missing: Write and Describe on transactional ids with the prefix"
    ),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "an ACL is missing: IdempotentWrite on the cluster",
    KafkaError.MSG_SIZE_TOO_LARGE: "a record is larger than the topic's max.message.bytes",
    KafkaError.RECORD_LIST_TOO_LARGE: "a batch is larger than the broker's segments",
    KafkaError.INVALID_RECORD: "the broker refused a record, as a compacted topic does one without key",
    KafkaError.POLICY_VIOLATION: "a policy of the broker refused the request",
    KafkaError.UNSUPPORTED_VERSION: "the broker is too old for transactions",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "the transaction timeout is above the broker's maximum",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "the topic or partition is not there",
    KafkaError._NOENT: "the topic is not there",
    KafkaError._UNKNOWN_TOPIC: "the topic is not there",
    KafkaError._UNKNOWN_PARTITION: "the partition is not there",
}


def meaning_of(code: int) -> Meaning:
    """What an error code of the client or broker means for the attempt that met it."""
    if code in _FENCED:
        return Meaning.FENCED
    if code in _REFUSED:
        return Meaning.REFUSED
    return Meaning.UNKNOWN


def reason_of(code: int) -> str:
    """A refusal in plain words; for other codes the client's name of it."""
    return _REFUSED.get(code) or KafkaError(code).name()


PARTITION_EOF: int = KafkaError._PARTITION_EOF
"""No error: the reader is at the end of what is committed."""

NOT_FOUND = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._NOENT,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
"""The topic is not there."""

PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._FATAL})
"""A message or a call came to nothing because of an earlier error of its instance."""

NOT_PERMITTED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""This principal has not the right."""

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
"""The brokers are between two leaders or coordinators: a question is asked again."""
