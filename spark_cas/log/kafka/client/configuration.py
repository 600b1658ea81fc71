"""Settings of the clients of a process: the user's settings, and fixed settings that override them."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from spark_cas.core.errors import OptionError
from spark_cas.log.kafka.client.tokens import tokens_of
from spark_cas.log.kafka.settings.client_settings import SETTINGS, Client
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.kafka.settings.sasl import CA_OF_ENDPOINT, EXTENSIONS, PROVIDER
from spark_cas.log.kafka.settings.secrets import RESOLVED, resolve
from spark_cas.log.kafka.settings.tls import with_stores
from spark_cas.log.kafka.settings.translate import for_client

_BATCH_BYTES = 1_000_000
REQUEST_RECORDS = 10_000
"""A request is full with this many records, or with ``batch.size`` bytes."""
_NO_LIMIT_BYTES = 1_000_000_000
"""The highest value that the client accepts. The topic limits the size of a record."""
_IN_FLIGHT = 5
"""The default and the limit of an idempotent producer. Brokers keep the order of so many requests."""

_PATHS = {
    CA_OF_ENDPOINT: "ssl.truststore.location in kafka.sasl.jaas.config",
    "ssl.ca.location": "kafka.ssl.truststore.location",
    "ssl.certificate.location": "kafka.ssl.keystore.location",
    "ssl.key.location": "kafka.ssl.keystore.location",
    "ssl.keystore.location": "kafka.ssl.keystore.location",
}

_NAMES = {**RESOLVED, **_PATHS, **{setting.rdkafka: f"kafka.{setting.java}" for setting in SETTINGS}}
"""The names of librdkafka's settings that users know."""

Made = TypeVar("Made")


def settings_of(spec: KafkaSpec, client: Client) -> dict[str, Any]:
    """Return the settings of every client of a spec. Fixed settings override the user's.

    Raises:
        OptionError: A secret, a token or a file is not available here.
    """
    values: dict[str, Any] = with_stores(resolve(for_client(spec.client_options, client)))
    if PROVIDER in values:
        values["oauth_cb"] = tokens_of(values.pop(PROVIDER), values.pop(EXTENSIONS, ""))
    return {
        # A new client waits half of this time between its first connection and the next.
        "reconnect.backoff.ms": min(20, int(values.get("reconnect.backoff.max.ms", 20))),
        **values,
        # Named for consumers, but valid for all clients: a request for a deleted topic must not recreate it.
        "allow.auto.create.topics": False,
        "bootstrap.servers": spec.bootstrap_servers,
        "socket.timeout.ms": int(1000 * spec.request_seconds),
        "log_level": 2,
    }


def started(make: Callable[[dict[str, Any]], Made], settings: dict[str, Any]) -> Made:
    """Create a client. Raises OptionError if the settings are invalid, without a value or the client's text."""
    try:
        return make(settings)
    except KafkaException as error:
        message = error.args[0].str()
        result = [name for name in _NAMES if name in settings and _is_named(name, message)]
    subject = _NAMES[result[0]] if result else "one of the settings kafka.*"
    raise OptionError(
        f"the Kafka client rejected its configuration: {subject} is not usable. Check that files exist on every "
        f"machine and have the right content, that a key belongs to its certificate, that passwords are right, and "
        f"that timeouts are consistent."
    )


def _is_named(name: str, message: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", message) is not None


def producer_settings(spec: KafkaSpec, most_batch_bytes: int | None, delivery_ms: int) -> dict[str, Any]:
    """Return the settings of every producer. A record is acknowledged when all in-sync replicas have it.

    Records do not linger. A request is sent when it is full, and the last request of a chunk when it is flushed
    (decision 0009).
    """
    values = settings_of(spec, Client.PRODUCER)
    batch_bytes = int(values.get("batch.size", _BATCH_BYTES))
    return {
        "message.max.bytes": _NO_LIMIT_BYTES,
        "max.in.flight": _IN_FLIGHT,
        **values,
        "linger.ms": min(delivery_ms - 1, 900_000),  # the highest value that the client accepts
        "batch.size": min(batch_bytes, most_batch_bytes or batch_bytes),
        "batch.num.messages": REQUEST_RECORDS,
        "message.timeout.ms": delivery_ms,
        "acks": "all",
        "queue.buffering.max.messages": 0,
        "queue.buffering.max.kbytes": 2_097_151,
    }
