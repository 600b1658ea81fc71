"""Describe errors of the client without its own text, which may contain settings."""

from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException

from spark_cas.core.errors import AccessDeniedError, LogNotFoundError, StorageError
from spark_cas.log.kafka.client.codes import (
    NO_COORDINATOR,
    NOT_FOUND,
    TOO_OLD,
    UNREACHABLE,
    Meaning,
    meaning_of,
    reason_of,
)
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec

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
