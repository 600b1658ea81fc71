"""From what a user gives to a `KafkaSpec`: everything is checked here, and no client is needed for it."""

import re
from collections.abc import Mapping

from spark_cas.core.errors import OptionError
from spark_cas.core.names import check_name
from spark_cas.log.kafka.settings.translate import librdkafka_settings
from spark_cas.log.kafka.settings.transport import check_transport
from spark_cas.log.kafka.settings.unused import holds_instead, tell
from spark_cas.log.kafka.spec import DEFAULT_PREFIX, DEFAULT_TRANSACTION_MS, MOST_IN_FLIGHT, KafkaSpec
from spark_cas.log.patience import PATIENCE_MS

SCHEME = "kafka"
_ID_PREFIX = "idprefix"

_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")


def check_servers(text: str) -> str:
    """``host:port`` pairs separated by commas, without blanks; ValueError saying what was expected."""
    servers = [each.strip() for each in text.split(",") if each.strip()]
    if not servers or not all(_SERVER.fullmatch(each) for each in servers):
        raise ValueError("host:port, or several separated by commas")
    return ",".join(servers)


def kafka_spec(
    servers: str,
    topic: str,
    settings: Mapping[str, str],
    *,
    prefix: str = DEFAULT_PREFIX,
    claim_timeout_ms: int = PATIENCE_MS,
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_MS,
    max_in_flight: int = MOST_IN_FLIGHT,
) -> KafkaSpec:
    """The spec of a topic. ``settings`` are the clients' under Java's names.

    A secret among them may be a reference, ``env:NAME`` or ``file:PATH``, and stays one.
    Raises OptionError, which never shows a value.
    """
    try:
        servers = check_servers(servers)
    except ValueError as expected:
        raise OptionError(f"the address of the brokers must be {expected}; what was given is not.") from None
    pairs = librdkafka_settings(settings)
    check_transport(servers, pairs)
    return KafkaSpec(
        bootstrap_servers=servers,
        topic=check_name(topic, "the name of a topic"),
        prefix=check_name(prefix, "option idPrefix"),
        client_options=pairs,
        claim_timeout_ms=claim_timeout_ms,
        transaction_timeout_ms=transaction_timeout_ms,
        max_in_flight=max_in_flight,
    )


def parse_kafka_url(url: str, settings: Mapping[str, str]) -> KafkaSpec:
    """The spec of ``kafka://host1:9092,host2:9092/topic``, settings that have no effect told. Raises OptionError.

    ``idPrefix`` among the settings is no client's: it is option idPrefix.
    """
    prefix = DEFAULT_PREFIX
    of_clients = {}
    for name, value in settings.items():
        if name.lower() == _ID_PREFIX:
            prefix = value
            continue
        of_clients[name] = value
        instead = holds_instead(name.lower(), value)
        if instead is not None:
            tell(f"kafka.{name.lower()}", instead)
    servers, _, topic = url.partition("://")[2].partition("/")
    return kafka_spec(servers, topic.strip("/"), of_clients, prefix=prefix)
