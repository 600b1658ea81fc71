"""Open the backend of a log from its address."""

from collections.abc import Callable, Mapping
from urllib.parse import unquote, urlsplit

from spark_cas.log.backend import Backend
from spark_cas.log.kafka.settings.address import SCHEME as KAFKA
from spark_cas.log.kafka.settings.address import kafka_spec, parse_kafka_url
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.objects import ObjectLog
from spark_cas.log.spec import LogSpec

AnySpec = LogSpec | KafkaSpec
"""The address of a log on any backend. Its ``url`` is an address of the same log, and ``topic`` is its name."""


def parse_address(address: str, settings: Mapping[str, str] | None = None) -> AnySpec:
    """Return the spec of a directory, an object store URL, or ``kafka://host:9092,host:9092/topic``.

    Args:
        address: A path or a URL.
        settings: Client settings. For an object store, obstore's names, such as ``aws_region``. For Kafka, the Java
            client's names, such as ``security.protocol``, and ``idPrefix`` and ``tokenProvider`` for the options of
            these names.

    Raises:
        OptionError: The address or a setting is invalid.
    """
    if address.partition(":")[0].lower() == KAFKA:
        return parse_kafka_url(address, settings or {})
    return LogSpec.parse(address, dict(settings or {}))


def with_settings(
    address: AnySpec,
    settings: dict[str, str],
    *,
    prefix: str,
    token_provider: str | None,
    open_transaction_wait_ms: int,
    transaction_timeout_ms: int,
) -> AnySpec:
    """Return the same log with other client settings. The keyword arguments apply to topics. Raises OptionError."""
    if isinstance(address, LogSpec):
        return address.with_options(settings)
    return kafka_spec(
        address.bootstrap_servers,
        address.topic,
        settings,
        prefix=prefix,
        token_provider=token_provider,
        open_transaction_wait_ms=open_transaction_wait_ms,
        transaction_timeout_ms=transaction_timeout_ms,
    )


def open_log(address: str | AnySpec, settings: Mapping[str, str] | None = None) -> Backend:
    """Open the log at a path, a URL or a spec. The log need not exist: ``create`` creates it.

    Use the result as a context manager, and open it in the process that uses it: its clients cannot be pickled and do
    not survive a fork.

    An object store is checked for put-if-absent before the first write.

    Args:
        address: An address as for `parse_address`, or a spec.
        settings: Client settings as for `parse_address`. Ignored for a spec.

    Raises:
        OptionError: No store serves the address.
        FormatError: The address is a file.
    """
    return open_spec(parse_address(address, settings) if isinstance(address, str) else address)


def open_spec(spec: AnySpec, *, pooled: bool = False) -> Backend:
    """Open the log of a spec, as `open_log`.

    With ``pooled``, the clients of a topic stay connected for the next log that the process opens. A pooled client is
    used for at most five minutes. One that was idle for a minute is closed when the next log is opened.
    """
    if isinstance(spec, KafkaSpec):
        from spark_cas.log.kafka import KafkaLog  # noqa: PLC0415 - Kafka's client loads for topics only

        return KafkaLog(spec, pooled=pooled)
    return ObjectLog(spec)


def open_topics(spec: AnySpec) -> Callable[[], tuple[str, ...]]:
    """Return a function that lists the topics of the brokers of a spec (`Topics.names`), with the same client.

    Raises TypeError if the spec has no brokers.
    """
    if not isinstance(spec, KafkaSpec):
        raise TypeError(f"{spec.server} has no topics")
    from spark_cas.log.kafka.topic.topics import Topics  # noqa: PLC0415 - as above

    return Topics(spec).names


def is_named(url: str, text: str) -> bool:
    """Return whether a text contains the address of a log: its URL or, for a directory, its path."""
    parts = urlsplit(url)
    return url in text or (parts.scheme == "file" and unquote(parts.path) in text)
