"""The records of a chunk on their way into a transaction, and where the brokers say that they lie.

No broker knows an expected offset. But a delivery report names a record's offset while the transaction is still open:
when the first record landed at the end that was checked and the last one exactly as many offsets on as there are
records, nobody came in between, and only then is the transaction committed. Readers of committed records never see
anything else.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaException, TopicPartition

from spark_cas.core.columns import lengths_of
from spark_cas.core.errors import SchemaError
from spark_cas.log.kafka.append.delivery import await_delivery
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.client.configuration import REQUEST_RECORDS
from spark_cas.log.kafka.client.reports import Reports


def refuse_unsendable(records: pa.Table) -> None:
    """Refuse what Kafka does not take, headers without a key, and what its client would change.

    That is the time 0, and keys of headers with the character NUL.

    Raises SchemaError.
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
    """Records on their way, in order, in a producer's open transaction; those without a time get ``time_ms``."""

    def __init__(self, producer: TransactionalProducer, at: TopicPartition, records: pa.Table, time_ms: int) -> None:
        """Hand the records over. Raises KafkaException."""
        self._producer = producer
        self._held_back = held_back(records, producer.request_bytes)
        try:
            self._reports = producer.client.hand_over(at.partition, records, time_ms)
        except KafkaException as error:
            # An earlier record may have broken the transaction while this one was handed over.
            raise KafkaException(producer.what_broke(error.args[0])) from None

    def arrive(self, timeout_seconds: float) -> bool:
        """Wait until each record is acknowledged, or one was refused; False when that lasts too long.

        Raises KafkaException.
        """
        reports = self._reports
        return await_delivery(
            self._producer,
            self._held_back,
            timeout_seconds,
            until=lambda: reports.came or self.refused,
        )

    @property
    def refused(self) -> bool:
        """Whether a record was refused, as far as it is known."""
        return self._reports.error is not None

    def delivered(self) -> Reports:
        """What became of the records that did `arrive`.

        Raises KafkaException for the error of a record that was reported; another's makes the transaction one that
        can only be aborted, which the next request of it raises.
        """
        if self._reports.error is not None:
            raise KafkaException(self._producer.what_broke(self._reports.error))
        return self._reports


def held_back(records: pa.Table, request_bytes: int) -> int:
    """How many of the last records fill no request: the client keeps them until it is asked for them.

    It counts them, and the bytes of their keys and values.
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
    """Send records and wait until each is acknowledged, as `Sending` does; None when that lasts too long."""
    sending = Sending(producer, at, records, time_ms)
    return sending.delivered() if sending.arrive(timeout_seconds) else None
