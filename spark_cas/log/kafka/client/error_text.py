"""Describe errors of the client without its own text, which may contain settings."""

from confluent_kafka import KafkaException

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
from spark_cas.log.kafka.client.rights import NOT_PERMITTED, Right, missing


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
