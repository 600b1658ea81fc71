"""Wait for the brokers to acknowledge the records of a producer, without using CPU.

While `flush` runs, or a record is older than ``linger.ms``, librdkafka (2.16) keeps the broker thread busy if it may
not send a queued record yet. The wait for one reply then takes a whole core, which a broker on the same machine may
need. So records do not linger: the client sends full requests by itself. Only the remaining records, less than a
request, are flushed, for a moment at a time (decision 0009).
"""

import time
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException

from spark_cas.log import timing
from spark_cas.log.kafka.client.clients import PlainProducer, TransactionalProducer


def await_delivery(
    producer: TransactionalProducer | PlainProducer,
    held_back: int,
    timeout_seconds: float,
    until: Callable[[], bool],
) -> bool:
    """Send queued records and serve their reports until all are served, or until ``until`` returns True.

    Args:
        producer: The producer that holds the records.
        held_back: How many records do not fill a request, so that the client keeps them until a flush.
        timeout_seconds: How long to wait for all reports.
        until: Returns whether to stop waiting.

    Returns:
        False if the timeout is over, True otherwise.

    Raises:
        KafkaException: A send failed. Raised at once if the client has no brokers left.
    """
    client, deadline = producer.client, time.monotonic() + timeout_seconds
    first_pause, longest_pause = timing.current().poll_pause, timing.current().longest_poll_pause
    pause, waiting = first_pause, len(client)
    with producer.watched():
        while waiting and not until():
            # If nothing moves, the number of remaining records may have been too high an estimate.
            flushing = waiting <= held_back or pause == longest_pause
            if flushing:
                client.flush(2 * first_pause)
                if until() or not len(client):
                    return True
            # A flush lasts as long as the first pause, or longer. The partition may have joined the transaction only
            # during the flush, and then the next flush sends the records.
            client.poll(0 if flushing and pause == first_pause else pause)
            if producer.stranded:
                raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))  # noqa: SLF001 - it is public
            before, waiting = waiting, len(client)
            pause = first_pause if waiting < before else min(longest_pause, pause * 2)
            if waiting and time.monotonic() > deadline:
                return False
    return True
