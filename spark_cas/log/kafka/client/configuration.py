"""What the clients of a process are set up with: the user's settings, and over them what always holds."""

from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from spark_cas.log.kafka.settings.rejected import unusable
from spark_cas.log.kafka.settings.secrets import resolve
from spark_cas.log.kafka.settings.table import Client
from spark_cas.log.kafka.settings.translate import for_client
from spark_cas.log.kafka.spec import KafkaSpec

_RECONNECT_MS = 20
_BATCH_BYTES = 1_000_000
REQUEST_RECORDS = 10_000
"""A request is full with so many records, or with ``batch.size`` bytes of them."""
_NO_LIMIT_BYTES = 1_000_000_000
"""The most that the client may be told: how large a record may be is the topic's to say."""
_MOST_LINGER_MS = 900_000

Made = TypeVar("Made")


def settings_of(spec: KafkaSpec, client: Client) -> dict[str, Any]:
    """What every client of a spec is set up with. The user's settings come first: ours always hold."""
    given: dict[str, Any] = resolve(for_client(spec.client_options, client))
    return {
        # Half of it is how long a new client waits between its first connection and the next.
        "reconnect.backoff.ms": min(_RECONNECT_MS, int(given.get("reconnect.backoff.max.ms", _RECONNECT_MS))),
        **given,
        # Named for consumers, but it holds for all: to ask for a topic that was deleted does not make it anew.
        "allow.auto.create.topics": False,
        "bootstrap.servers": spec.bootstrap_servers,
        "socket.timeout.ms": int(1000 * spec.request_seconds),
        "log_level": 2,
    }


def started(make: Callable[[dict[str, Any]], Made], settings: dict[str, Any]) -> Made:
    """A client. Raises OptionError for settings that it cannot start with."""
    try:
        return make(settings)
    except KafkaException as error:
        raise unusable(error, settings) from None


def producer_settings(spec: KafkaSpec, most_batch_bytes: int | None, delivery_ms: int) -> dict[str, Any]:
    """What every producer is set up with: acknowledged is what all replicas in sync have.

    No record lingers by time: a request goes out when it is full, and the last one of a chunk when it is asked for
    (decision 0021).
    """
    given = settings_of(spec, Client.PRODUCER)
    batch_bytes = int(given.get("batch.size", _BATCH_BYTES))
    return {
        "message.max.bytes": _NO_LIMIT_BYTES,
        **given,
        "linger.ms": min(delivery_ms - 1, _MOST_LINGER_MS),
        "batch.size": min(batch_bytes, most_batch_bytes or batch_bytes),
        "batch.num.messages": REQUEST_RECORDS,
        "message.timeout.ms": delivery_ms,
        "acks": "all",
        "max.in.flight": spec.max_in_flight,
        "queue.buffering.max.messages": 0,
        "queue.buffering.max.kbytes": 2_097_151,
    }
