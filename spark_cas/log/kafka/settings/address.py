"""Build a `KafkaSpec` from user input. All input is checked here, without a client."""

import re
from collections.abc import Mapping

from spark_cas.core.check_name import check_name
from spark_cas.core.errors import OptionError
from spark_cas.log.kafka.settings.client_settings import holds_instead, log_ignored
from spark_cas.log.kafka.settings.kafka_spec import DEFAULT_PREFIX, DEFAULT_TRANSACTION_MS, KafkaSpec
from spark_cas.log.kafka.settings.sasl import check_transport
from spark_cas.log.kafka.settings.translate import librdkafka_settings
from spark_cas.log.timing import RETRY_TIMEOUT_MS

SCHEME = "kafka"
_OWN_OPTIONS = ("idprefix", "tokenprovider")
"""Options that are given like client settings."""

_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_HIGHEST_PORT = 65535


def check_servers(text: str) -> str:
    """Return ``host:port`` pairs separated by commas, without blanks. Raises ValueError with the expected format."""
    servers = [each.strip() for each in text.split(",") if each.strip()]
    result = [_SERVER.fullmatch(each) for each in servers]
    if not result or not all(each and 0 < int(each[1]) <= _HIGHEST_PORT for each in result):
        raise ValueError("host:port with a port from 1 to 65535, or several separated by commas")
    return ",".join(servers)


def kafka_spec(
    servers: str,
    topic: str,
    settings: Mapping[str, str],
    *,
    prefix: str = DEFAULT_PREFIX,
    token_provider: str | None = None,
    open_transaction_wait_ms: int = RETRY_TIMEOUT_MS,
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_MS,
) -> KafkaSpec:
    """Return the spec of a topic with these bootstrap servers. The other arguments are the options of these names.

    The settings have the names of Kafka's Java client. A secret in them may be a reference, such as ``env:NAME``, and
    is not resolved here.

    Raises:
        OptionError: An argument is invalid. The message never contains a value.
    """
    try:
        servers = check_servers(servers)
    except ValueError as expected:
        raise OptionError(f"the address of the brokers must be {expected}, but has another form.") from None
    pairs = librdkafka_settings(settings, servers, token_provider)
    check_transport(servers, pairs)
    return KafkaSpec(
        bootstrap_servers=servers,
        topic=check_name(topic, "the name of a topic"),
        prefix=check_name(prefix, "option idPrefix"),
        client_options=pairs,
        open_transaction_wait_ms=open_transaction_wait_ms,
        transaction_timeout_ms=transaction_timeout_ms,
    )


def parse_kafka_url(url: str, settings: Mapping[str, str]) -> KafkaSpec:
    """Return the spec of ``kafka://host1:9092,host2:9092/topic``, and log a warning for settings that have no effect.

    ``idPrefix`` and ``tokenProvider`` in ``settings`` are not client settings but the options of these names. Raises
    OptionError.
    """
    own = {name.lower(): value for name, value in settings.items() if name.lower() in _OWN_OPTIONS}
    of_clients = {name: value for name, value in settings.items() if name.lower() not in _OWN_OPTIONS}
    for name, value in of_clients.items():
        instead = holds_instead(name.lower(), value)
        if instead is not None:
            log_ignored(f"kafka.{name.lower()}", instead)
    servers, _, topic = url.partition("://")[2].partition("/")
    prefix, token_provider = own.get("idprefix", DEFAULT_PREFIX), own.get("tokenprovider")
    return kafka_spec(servers, topic.strip("/"), of_clients, prefix=prefix, token_provider=token_provider)
