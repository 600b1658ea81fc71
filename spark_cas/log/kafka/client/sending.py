"""Send the records of a chunk in a transaction, and collect the offsets that the brokers report.

Brokers do not support expected offsets. But a delivery report contains the offset of a record while the transaction
is still open. If the first record is at the checked end, and the last one as many offsets later as there are records,
no other producer has interleaved. Only then is the transaction committed. Readers of committed records never see
anything else.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaException, TopicPartition

from spark_cas.core.errors import SchemaError
from spark_cas.core.records import lengths_of
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.client.configuration import REQUEST_RECORDS
from spark_cas.log.kafka.client.delivery import await_delivery
from spark_cas.log.kafka.client.reports import Reports


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
        """Wait until all records are acknowledged or one is rejected. Return False after the timeout.

        Raises:
            KafkaException.
        """
        reports = self._reports
        return await_delivery(
            self._producer,
            self._held_back,
            timeout_seconds,
            until=lambda: reports.arrived or self.refused,
        )

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
