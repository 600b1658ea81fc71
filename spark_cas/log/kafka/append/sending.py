"""The records of a chunk on their way into a transaction, and where the brokers say that they lie.

No broker knows an expected offset. But a delivery report names a record's offset while the transaction is still open:
when the first record landed at the end that was checked and the last one exactly as many offsets on as there are
records, nobody came in between, and only then is the transaction committed. Readers of committed records never see
anything else.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, TopicPartition

from spark_cas.core.errors import SchemaError
from spark_cas.core.offsets import OffsetRange
from spark_cas.log.kafka.append.delivery import await_delivery
from spark_cas.log.kafka.client.clients import PlainProducer, TransactionalProducer

_SLICE_ROWS = 10_000
"""Rows that are Python objects at a time."""

_Report = Callable[[KafkaError | None, Message], None]


class _Reported:
    """What became of one record."""

    def __init__(self) -> None:
        self.came = False
        self.error: KafkaError | None = None
        self.offset: int | None = None
        self.log_append_ms: int | None = None

    def take(self, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        self.error = error
        self.offset = None if offset is None or offset < 0 else offset
        whose, time_ms = message.timestamp()
        self.log_append_ms = time_ms if whose == TIMESTAMP_LOG_APPEND_TIME else None
        self.came = True


class _Reports:
    """The delivery reports of the first and the last record, which are one when there is but one."""

    def __init__(self, rows: int) -> None:
        self.first = _Reported()
        self.last = _Reported() if rows > 1 else self.first
        self._rows = rows

    def callbacks(self) -> Iterator[_Report | None]:
        """What each row's delivery is reported to. A report takes time, so only two of them are asked for."""
        ends = chain([self.first.take], repeat(None, self._rows - 2), [self.last.take])
        return ends if self._rows > 1 else iter([self.first.take])

    @property
    def error(self) -> KafkaError | None:
        return self.first.error or self.last.error

    @property
    def came(self) -> bool:
        return self.first.came and self.last.came


@dataclass(frozen=True, slots=True)
class Delivered:
    """What the brokers reported of a chunk's records. Each of them was acknowledged."""

    first: int | None
    """Offset of the first record; None when the report carried none, as a duplicate's does (KIP-192)."""
    last: int | None
    """Offset of the last record, likewise."""
    count: int
    log_append_ms: int | None = None
    """The time that the broker gave to the last record, where it gives it to all (LogAppendTime)."""

    def range(self) -> OffsetRange | None:
        """Where the records lie, others perhaps among them; None when that is not known."""
        return None if self.first is None or self.last is None else OffsetRange(self.first, self.last + 1)


def refuse_unsendable(records: pa.Table) -> None:
    """Refuse what the client would change: the time 0, and keys of headers with the character NUL.

    Raises SchemaError.
    """
    if pc.any(pc.equal(records.column("timestamp").cast(pa.int64()), 0)).as_py():
        raise SchemaError(
            "a row has the timestamp 1970-01-01 00:00:00 UTC, which Kafka's client replaces by the present time. "
            "Nothing of this chunk was appended. Give the row another timestamp, or null for the present time."
        )
    headers = records.column("headers")
    if headers.null_count < len(headers):
        keys = pc.struct_field(pc.list_flatten(headers), "key")
        if pc.any(pc.match_substring(keys, "\0")).as_py():
            raise SchemaError(
                "a header's key holds the character NUL, where Kafka's client cuts it off. Nothing of this chunk was "
                "appended. Leave the character out of the key; a header's value may hold it."
            )


class Sending:
    """Records of a chunk on their way, in order, in a producer's open transaction."""

    def __init__(self, producer: TransactionalProducer, at: TopicPartition, records: pa.Table) -> None:
        """Hand the records over. Raises KafkaException."""
        self._producer = producer
        self._rows = records.num_rows
        self._request_rows = request_rows(records, producer.request_bytes)
        self._reports = _Reports(self._rows)
        callbacks = self._reports.callbacks()
        try:
            hand_over(producer, at, records, callbacks)
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
            self._request_rows,
            timeout_seconds,
            until=lambda: reports.came or reports.error is not None,
        )

    def delivered(self) -> Delivered:
        """What became of the records that did `arrive`.

        Raises KafkaException for the first or last record's error; another's makes the transaction one that can only
        be aborted, which the next request of it raises.
        """
        reports = self._reports
        if reports.error is not None:
            raise KafkaException(self._producer.what_broke(reports.error))
        return Delivered(reports.first.offset, reports.last.offset, self._rows, reports.last.log_append_ms)


def request_rows(records: pa.Table, request_bytes: int) -> float:
    """About how many of these records fill a request, as many as there are bytes for."""
    return float(request_bytes * records.num_rows / max(1, records.nbytes))


def produce(
    producer: TransactionalProducer, at: TopicPartition, records: pa.Table, timeout_seconds: float
) -> Delivered | None:
    """Send records and wait until each is acknowledged, as `Sending` does; None when that lasts too long."""
    sending = Sending(producer, at, records)
    return sending.delivered() if sending.arrive(timeout_seconds) else None


def hand_over(
    producer: TransactionalProducer | PlainProducer, at: TopicPartition, records: pa.Table, callbacks: Iterator[Any]
) -> None:
    """Give records to a producer, and each to its callback what becomes of it. Raises KafkaException."""
    for batch in records.to_batches(max_chunksize=_SLICE_ROWS):
        _send(producer, at, batch, callbacks)


def _send(
    producer: TransactionalProducer | PlainProducer,
    at: TopicPartition,
    batch: pa.RecordBatch,
    callbacks: Iterator[Any],
) -> None:
    # Calls without a step of Python between them. The values come first of what ends, so none of the callbacks is
    # lost when they do. No frame that an error may keep alive holds the client itself: nobody would serve it.
    deque(
        map(
            producer.client.produce,
            repeat(at.topic),
            _objects(batch.column("value")),
            _objects(batch.column("key")),
            repeat(at.partition),
            callbacks,
            repeat(None),
            _objects(batch.column("timestamp").cast(pa.int64())),
            _headers(batch.column("headers")),
        ),
        maxlen=0,
    )


def _objects(column: pa.Array) -> list[Any]:
    """The values as Python objects, null as None. By way of numpy, for older pyarrows take long over each value."""
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values


def _headers(column: pa.Array) -> Iterator[list[tuple[str, bytes | None]] | None]:
    """Each record's headers as the client takes them; None for a record without any, whatever comes after."""
    if column.null_count == len(column):
        return repeat(None)
    return ([(each["key"], each["value"]) for each in headers] if headers else None for headers in column.to_pylist())
