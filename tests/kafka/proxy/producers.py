"""Producers with short timeouts, so that a fault costs a second instead of a minute."""

from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from tests.kafka.clients import SECONDS

REQUEST_TIMEOUT_MS = 1000
"""A shorter timeout would fail on a busy machine with a healthy broker."""

_HASTY = {
    "socket.timeout.ms": REQUEST_TIMEOUT_MS,
    "message.timeout.ms": 30_000,
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "linger.ms": 0,
    "log_level": 2,
}


def plain_producer(address: str, client_id: str, **settings: Any) -> Producer:
    """Return a producer, by default without transactions. Names of settings have underscores instead of dots."""
    return Producer(
        {
            **_HASTY,
            "bootstrap.servers": address,
            "client.id": client_id,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def transactional_producer(address: str, transactional_id: str, **settings: Any) -> Producer:
    """Return a producer with initialized transactions. Its client id is its transactional id."""
    producer = plain_producer(
        address, transactional_id, transactional_id=transactional_id, transaction_timeout_ms=30_000, **settings
    )
    producer.init_transactions(SECONDS)
    return producer


def send(producer: Producer, topic: str, values: Sequence[str]) -> list[KafkaError | None]:
    """Send values to partition 0, wait for the delivery report of each, and return the errors of the reports."""
    reports: list[KafkaError | None] = []

    def report(error: KafkaError | None, _message: Message) -> None:
        reports.append(error)

    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=report)
    assert producer.flush(SECONDS) == 0, f"{len(producer)} records are neither delivered nor given up"
    return reports
