"""Waiting asleep until the brokers acknowledged what was handed to a producer.

While `flush` runs, or a record is older than ``linger.ms``, librdkafka (2.16) keeps the thread of the broker awake as
long as records are queued that it may not send yet: from then on the wait for one reply takes a whole core, and where
the broker is on the same machine, takes it from that. So nothing lingers by time: a full request goes out by itself,
and only what is left, less than a request, is flushed, a moment at a time (decision 0021).
"""

import time
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException

from spark_cas.log.kafka.client.clients import PlainProducer, TransactionalProducer

_FLUSH_SECONDS = 0.001
_FIRST_PAUSE_SECONDS = 0.0005
_LONGEST_PAUSE_SECONDS = 0.1
"""A call that serves callbacks lasts no longer: the client splits one of 0.2 s and more, and goes on to run callbacks
after one that told it of a fatal error, with that error raised already."""


def await_delivery(
    producer: TransactionalProducer | PlainProducer,
    held_back: int,
    timeout_seconds: float,
    until: Callable[[], bool],
) -> bool:
    """Send what waits and serve its reports, until all are served or ``until`` holds; False after the timeout.

    ``held_back`` is how many records are too few for the client to send them by itself. Raises KafkaException, at
    once where the producer has nobody left to send to.
    """
    client, deadline = producer.client, time.monotonic() + timeout_seconds
    pause, waiting = _FIRST_PAUSE_SECONDS, len(client)
    with producer.watched():
        while waiting and not until():
            # Or nothing moves: then what is left may be less than was thought.
            flushing = waiting <= held_back or pause == _LONGEST_PAUSE_SECONDS
            if flushing:
                client.flush(_FLUSH_SECONDS)
                if until() or not len(client):
                    return True
            # A flush lasts as long as the first pause does, and the partition may have come into the transaction
            # only then: the next one sends what this one could not.
            client.poll(0 if flushing and pause == _FIRST_PAUSE_SECONDS else pause)
            if producer.stranded:
                raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))  # noqa: SLF001 - it is public
            before, waiting = waiting, len(client)
            pause = _FIRST_PAUSE_SECONDS if waiting < before else min(_LONGEST_PAUSE_SECONDS, pause * 2)
            if waiting and time.monotonic() > deadline:
                return False
    return True
