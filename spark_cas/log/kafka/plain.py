"""The client's errors in plain words, without its text, which may hold settings."""

from confluent_kafka import KafkaException

from spark_cas.core.errors import LogNotFoundError, StorageError
from spark_cas.log.kafka.codes import NOT_FOUND, Meaning, meaning_of, reason_of


def plain_error(error: KafkaException, doing: str) -> StorageError | LogNotFoundError:
    """What to raise for an error that the client raised outside of an append."""
    code = error.args[0].code()
    if code in NOT_FOUND:
        return LogNotFoundError(
            f"{doing}: {reason_of(code)}. Check the topic's name and the brokers' address, or create the topic first."
        )
    if meaning_of(code) is Meaning.REFUSED:
        return StorageError(f"{doing}: {reason_of(code)}. Mend that, then run the same job again.")
    return StorageError(
        f"{doing}: the brokers did not answer as they should ({reason_of(code)}). Check that the address is right, "
        f"that they can be reached from here, and that the security settings fit theirs."
    )
