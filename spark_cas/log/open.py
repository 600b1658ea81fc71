"""From an address to the backend that serves it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol
from urllib.parse import unquote, urlsplit

from spark_cas.log.backend import Backend
from spark_cas.log.kafka.address import SCHEME as KAFKA
from spark_cas.log.kafka.address import kafka_spec, parse_kafka_url
from spark_cas.log.kafka.spec import KafkaSpec
from spark_cas.log.objects import ObjectLog
from spark_cas.log.spec import LogSpec

AnySpec = LogSpec | KafkaSpec
"""Where a log is, whatever its backend. Its ``url`` is an address of the same log, and its ``topic`` its name."""


def parse_address(address: str, settings: Mapping[str, str] | None = None) -> AnySpec:
    """The spec of a directory, of the URL of an object store, or of ``kafka://host:9092,host:9092/topic``.

    ``settings`` are those of the client: an object store's under obstore's names, such as ``aws_region``, Kafka's
    under its Java client's, such as ``security.protocol``, and ``idPrefix`` as the option. Raises OptionError.
    """
    if address.partition(":")[0].lower() == KAFKA:
        return parse_kafka_url(address, settings or {})
    return LogSpec.parse(address, dict(settings or {}))


def with_settings(
    address: AnySpec,
    settings: dict[str, str],
    *,
    prefix: str,
    claim_timeout_ms: int,
    transaction_timeout_ms: int,
    max_in_flight: int,
) -> AnySpec:
    """The same log with the settings of its client, and what else a topic needs. Raises OptionError."""
    if isinstance(address, LogSpec):
        return address.with_options(settings)
    return kafka_spec(
        address.bootstrap_servers,
        address.topic,
        settings,
        prefix=prefix,
        claim_timeout_ms=claim_timeout_ms,
        transaction_timeout_ms=transaction_timeout_ms,
        max_in_flight=max_in_flight,
    )


def open_log(address: str | AnySpec, settings: Mapping[str, str] | None = None) -> Backend:
    """Open the log at a path, a URL or a spec; it need not be there yet (``create`` makes it).

    An address and ``settings`` are read as `parse_address` does. Use it as a context manager, in the process where
    it is needed: a backend holds clients that survive neither a pickle nor a fork.

    Raises OptionError for an address that no store serves, FormatError when it names a file. That an object store
    honours put-if-absent is proven before the first write.
    """
    spec = parse_address(address, settings) if isinstance(address, str) else address
    if isinstance(spec, KafkaSpec):
        from spark_cas.log.kafka import KafkaLog  # noqa: PLC0415 - Kafka's client loads for topics only

        return KafkaLog(spec)
    return ObjectLog(spec)


def open_again(spec: AnySpec) -> Backend:
    """As `open_log`, in a process that opens one log after the other: where brokers serve them, it stays connected.

    For five minutes at most, and clients that rested for one are let go of when the next log is opened.
    """
    if isinstance(spec, KafkaSpec):
        from spark_cas.log.kafka import KafkaLog  # noqa: PLC0415 - as above

        return KafkaLog(spec, handed_on=True)
    return open_log(spec)


class TopicList(Protocol):
    """The topics of some brokers, asked for as often as is needed."""

    def names(self) -> tuple[str, ...]:
        """The names of all topics, but for the brokers' own and the registry, sorted. Raises StorageError."""
        ...


def open_topics(spec: AnySpec) -> TopicList:
    """The topics that the brokers of a spec have. Its own topic is passed over. TypeError for a log without any."""
    if not isinstance(spec, KafkaSpec):
        msg = f"{spec.server} has no topics"
        raise TypeError(msg)
    from spark_cas.log.kafka.topics import Topics  # noqa: PLC0415 - as above

    return Topics(spec)


def is_named(url: str, text: str) -> bool:
    """Whether a text says where a log is: as its URL, or for a directory as its path."""
    parts = urlsplit(url)
    return url in text or (parts.scheme == "file" and unquote(parts.path) in text)


def answered_before(spec: AnySpec) -> AnySpec:
    """The same log for somebody who knows that it was reached: what cannot be connected to now is waited for.

    At first contact it is an error at once, as a wrong address is.
    """
    return replace(spec, met=True)


def for_one_transaction(spec: AnySpec, size: int) -> AnySpec:
    """The same log for who appends so many bytes in one transaction, where it has transactions.

    Raises BatchTooLargeError where none may be open for so long.
    """
    return spec.with_transaction_of(size) if isinstance(spec, KafkaSpec) else spec


def for_a_look(spec: AnySpec, patience_ms: int) -> AnySpec:
    """The same log for somebody who only looks, and does not wait longer for others or for the store than this."""
    if isinstance(spec, KafkaSpec):
        return spec.with_patience(patience_ms)
    return replace(spec, patience_ms=min(spec.patience_ms, patience_ms))
