"""Send the records of a chunk in a transaction, and collect the offsets that the brokers report.

Brokers do not support expected offsets. But a delivery report contains the offset of a record while the transaction
is still open. If the first record is at the checked end, and the last one as many offsets later as there are records,
no other producer has interleaved. Only then is the transaction committed. Readers of committed records never see
anything else.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from spark_cas.core.errors import SchemaError
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.records import lengths_of
from spark_cas.log import timing
from spark_cas.log.kafka.client.clients import PlainProducer, TransactionalProducer
from spark_cas.log.kafka.client.configuration import REQUEST_RECORDS


@dataclass(slots=True)
class Reports:
    """The delivery reports received so far."""

    waiting: int
    """How many reports are outstanding."""
    explicit_ms: int | None
    """The timestamp of records without one, in milliseconds since 1970. None if each record has one."""
    error: KafkaError | None = None
    """The first error among the reported records."""
    _first: int | None = None
    _last: int = -1
    _unplaced: bool = False

    @classmethod
    def of(cls, records: pa.Table, time_ms: int) -> Self:
        """Return the reports of records that are not sent yet. ``time_ms`` is for records without a timestamp."""
        return cls(records.num_rows, time_ms if records.column("timestamp").null_count else None)

    @property
    def arrived(self) -> bool:
        return self.waiting == 0

    @property
    def range(self) -> OffsetRange | None:
        """Return the offsets from the first to the last record, perhaps with other records between.

        None if a report had no offset, as that of a duplicate (KIP-192).
        """
        return None if self._unplaced or self._first is None else OffsetRange(self._first, self._last + 1)

    def take(self, count: int, first: int, last: int) -> None:
        """Record that ``count`` records were acknowledged at offsets ``first`` to ``last``, negative if unknown."""
        self.waiting -= count
        if first < 0 or last < 0:
            self._unplaced = True
            return
        self._first = first if self._first is None else min(self._first, first)
        self._last = max(self._last, last)

    def take_error(self, count: int, error: KafkaError) -> None:
        self.waiting -= count
        self.error = self.error or error


def refuse_unsendable(records: pa.Table) -> None:
    """Raise SchemaError for records that Kafka rejects or its client would change.

    Kafka rejects headers without a key. The client changes the timestamp 0, and keys of headers that contain NUL.
    """
    times = records.column("timestamp")
    if times.null_count < len(times) and pc.any(pc.equal(times.cast(pa.int64()), 0)).as_py():
        raise SchemaError(
            "a row has the timestamp 1970-01-01 00:00:00 UTC, which Kafka's client replaces by the present time. "
            "Nothing of this chunk was appended. Give the row another timestamp, or null for the present time."
        )
    headers = records.column("headers")
    if headers.null_count < len(headers):
        keys = pc.struct_field(pc.list_flatten(headers), "key")
        if keys.null_count:
            raise SchemaError(
                "a header has no key, and Kafka keeps none without. Nothing of this chunk was appended. Give it one "
                "or leave the header out; its value may be null."
            )
        if pc.any(pc.match_substring(keys, "\0")).as_py():
            raise SchemaError(
                "a header's key holds the character NUL, where Kafka's client cuts it off. Nothing of this chunk was "
                "appended. Leave the character out of the key; a header's value may hold it."
            )


class Sending:
    """Records being sent, in order, in a producer's open transaction. Records without a timestamp get ``time_ms``."""

    def __init__(self, producer: TransactionalProducer, at: TopicPartition, records: pa.Table, time_ms: int) -> None:
        """Pass the records to the producer. Raises KafkaException."""
        self._producer = producer
        self._held_back = held_back(records, producer.request_bytes)
        try:
            self._reports = Reports.of(records, time_ms)
            producer.client.hand_over(at.partition, records, time_ms, self._reports)
        except KafkaException as error:
            # An earlier record may have broken the transaction in the meantime.
            raise KafkaException(producer.root_cause(error.args[0])) from None

    def arrive(self, timeout_seconds: float) -> bool:
        """Return whether all records were acknowledged or one rejected before a timeout. Raises KafkaException."""

        def over() -> bool:
            return self._reports.arrived or self.refused

        return await_delivery(self._producer, self._held_back, timeout_seconds, until=over)

    @property
    def refused(self) -> bool:
        """Return whether a report of a rejected record has arrived."""
        return self._reports.error is not None

    def delivered(self) -> Reports:
        """Return the reports of the records, after `arrive`.

        Raises:
            KafkaException: The error of a reported record. For other records, the transaction fails at its next
                request.
        """
        if self._reports.error is not None:
            raise KafkaException(self._producer.root_cause(self._reports.error))
        return self._reports


def held_back(records: pa.Table, request_bytes: int) -> int:
    """Return how many of the last records do not fill a request, so that the client keeps them until a flush.

    A request is full by its number of records, or by the bytes of their keys and values.
    """
    last = records.slice(max(0, records.num_rows - (REQUEST_RECORDS - 1)))
    sizes = [
        sum(lengths_of(batch.column(name), of_null=0) for name in ("key", "value")) for batch in last.to_batches()
    ]
    upto = np.cumsum(np.concatenate(sizes)[::-1]) if sizes else np.zeros(0)
    return int(np.searchsorted(upto, request_bytes))


def produce(
    producer: TransactionalProducer, at: TopicPartition, records: pa.Table, time_ms: int, timeout_seconds: float
) -> Reports | None:
    """Send records as `Sending` does, and wait until all are acknowledged. Return None after the timeout."""
    sending = Sending(producer, at, records, time_ms)
    return sending.delivered() if sending.arrive(timeout_seconds) else None


def await_delivery(
    producer: TransactionalProducer | PlainProducer, unsent: int, timeout_seconds: float, until: Callable[[], bool]
) -> bool:
    """Send queued records and serve their reports until all are served, or until ``until`` returns True.

    While `flush` runs, or a record is older than ``linger.ms``, librdkafka (2.16) keeps the broker thread busy if it
    may not send a queued record yet. The wait for one reply then takes a whole core. So records do not linger: the
    client sends full requests by itself. Only the remaining records, less than a request, are flushed, for a moment
    at a time (decision 0009). ``unsent`` is their number.

    Return False if the timeout is over. Raises KafkaException if a send failed, and at once if the client has no
    brokers left.
    """
    client, deadline = producer.client, time.monotonic() + timeout_seconds
    first_pause, longest_pause = timing.current().poll_pause, timing.current().longest_poll_pause
    pause, waiting = first_pause, len(client)
    with producer.watched():
        while waiting and not until():
            # If nothing moves, the number of remaining records may have been too high an estimate.
            flushing = waiting <= unsent or pause == longest_pause
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
