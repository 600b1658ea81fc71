"""Produce records as Python objects with confluent-kafka's own producer, if `ArrayProducer` is not available."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, Producer

from spark_cas.core.offsets import Bounds
from spark_cas.core.records import fill_timestamps
from spark_cas.log.kafka.client.own_threads import CollectedElsewhere

if TYPE_CHECKING:
    from spark_cas.log.kafka.client.sending import Reports

SLICE_ROWS = 10_000
"""How many rows are converted to Python objects at a time."""

_Take = Callable[[KafkaError | None, Message], None]


class ObjectProducer(CollectedElsewhere, Producer):
    """The interface of `spark_cas.log.kafka.accelerators.array_producer.ArrayProducer`, with Python objects."""

    def __init__(self, settings: Mapping[str, Any], topic: str, logger: object) -> None:
        super().__init__({**settings, "logger": logger})
        self._topic = topic
        # Each report takes time. A transaction needs only the first and the last: an error of any other record breaks
        # it.
        self._reports_each = "transactional.id" not in settings

    def hand_over(self, partition: int, records: pa.Table, time_ms: int, reports: "Reports") -> None:
        rows = records.num_rows
        take: _Take = partial(_take, reports)
        callbacks: Iterator[_Take | None] = repeat(take)
        if not self._reports_each:
            reports.waiting = min(rows, 2)
            callbacks = chain([take], repeat(None, rows - 2), [take][: rows - 1])
        for batch in fill_timestamps(records, time_ms).to_batches(max_chunksize=SLICE_ROWS):
            self._produce(partition, batch, callbacks)

    def meet_leader(self, _partition: int, seconds: float) -> None:
        """Request the metadata of the brokers. The client then connects to one of them by itself."""
        self.list_topics(self._topic, seconds)

    def decided_bounds(self, _partition: int, _seconds: float) -> Bounds:
        """Raise KafkaException: confluent-kafka's producers cannot list offsets."""
        raise KafkaException(KafkaError(KafkaError._NOT_IMPLEMENTED))  # noqa: SLF001 - as above

    def describe(self, _seconds: float) -> tuple[str, int]:
        """Raise KafkaException: confluent-kafka's producers cannot describe topics."""
        raise KafkaException(KafkaError(KafkaError._NOT_IMPLEMENTED))  # noqa: SLF001 - as above

    def drop(self) -> None:
        """Drop unacknowledged records. The owner frees the client, and its close aborts a transaction."""
        self.purge()

    def _produce(self, partition: int, batch: pa.RecordBatch, callbacks: Iterator[_Take | None]) -> None:
        # Runs all calls without a step of Python between them. The values are the first iterator to end, so `map`
        # takes no callback that it does not use.
        deque(
            map(
                self.produce,
                repeat(self._topic),
                _objects(batch.column("value")),
                _objects(batch.column("key")),
                repeat(partition),
                callbacks,
                repeat(None),
                _objects(batch.column("timestamp").cast(pa.int64())),
                _headers(batch.column("headers")),
            ),
            maxlen=0,
        )


def _take(reports: "Reports", error: KafkaError | None, message: Message) -> None:
    if error is not None:
        reports.take_error(1, error)
        return
    offset = message.offset()
    offset = -1 if offset is None else offset
    reports.take(1, offset, offset)
    whose, time_ms = message.timestamp()
    if whose == TIMESTAMP_LOG_APPEND_TIME:
        reports.explicit_ms = time_ms


def _objects(column: pa.Array) -> list[Any]:
    """Return the values as Python objects. Convert through numpy: older pyarrows are slow for each value."""
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values


def _headers(column: pa.Array) -> Iterator[list[tuple[str, bytes | None]] | None]:
    """Yield the headers of each record in the client's format, None for a record without headers. May be endless."""
    if column.null_count == len(column):
        return repeat(None)
    return ([(each["key"], each["value"]) for each in headers] if headers else None for headers in column.to_pylist())
