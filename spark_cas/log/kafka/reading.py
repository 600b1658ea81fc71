"""Reading committed records of a range of offsets, and nothing else.

A partition's end is known from its end-of-partition event or the reader's position, never from "the record before
the end": markers and aborted records use up offsets and are never delivered.
"""

import time
from collections.abc import Iterator

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from spark_cas.core.errors import StorageError
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.records import RECORDS
from spark_cas.log.kafka.clients import reader
from spark_cas.log.kafka.codes import PARTITION_EOF
from spark_cas.log.kafka.plain import plain_error
from spark_cas.log.kafka.spec import KafkaSpec

_SCAN_FETCH_MS = 10
_POLL_MESSAGES = 10_000
_POLL_SECONDS = 0.5
_STALL_SECONDS = 60.0


def first_record(spec: KafkaSpec, at: TopicPartition, offsets: OffsetRange) -> int | None:
    """Offset of the first committed record in a range, None when it holds none. Raises StorageError."""
    for messages in _messages(spec, at, offsets, fetch_wait_ms=_SCAN_FETCH_MS, count=1):
        return offset_of(messages[0])
    return None


def read_records(
    spec: KafkaSpec, at: TopicPartition, offsets: OffsetRange, columns: tuple[str, ...]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (offset of the first, records at consecutive offsets), in order. Raises StorageError."""
    schema = pa.schema([RECORDS.field(name) for name in columns])
    for messages in _messages(spec, at, offsets, fetch_wait_ms=500, count=_POLL_MESSAGES):
        for run in _runs(messages):
            arrays = [pa.array([_FIELDS[name](each) for each in run], schema.field(name).type) for name in columns]
            yield offset_of(run[0]), _batch(arrays, schema, len(run))


def _messages(
    spec: KafkaSpec, at: TopicPartition, offsets: OffsetRange, *, fetch_wait_ms: int, count: int
) -> Iterator[list[Message]]:
    """Yield the committed messages of a range, some at a time."""
    if len(offsets) == 0:
        return
    consumer = reader(spec, fetch_wait_ms=fetch_wait_ms)
    try:
        consumer.assign([TopicPartition(at.topic, at.partition, offsets.base_offset)])
        stalled = time.monotonic() + _STALL_SECONDS
        ended = False
        while not ended:
            polled = _poll(consumer, count)
            if polled:
                stalled = time.monotonic() + _STALL_SECONDS
            elif time.monotonic() > stalled:
                raise StorageError(
                    f"reading partition {at.partition} of topic {at.topic}: no answer from the brokers for "
                    f"{_STALL_SECONDS:.0f} s. Check that they are well, then read again."
                )
            found, ended = _within(polled, offsets)
            if found:
                yield found
            ended = ended or _position(consumer, at) >= offsets.end_offset
    finally:
        consumer.close()


def _poll(consumer: Consumer, count: int) -> list[Message]:
    """What has arrived, after a wait for the first: the client's own wait is for all that it is asked for."""
    first = consumer.poll(_POLL_SECONDS)
    if first is None:
        return []
    return [first, *consumer.consume(count - 1, 0)] if count > 1 else [first]


def _within(polled: list[Message], offsets: OffsetRange) -> tuple[list[Message], bool]:
    """The messages of a range, and whether its end was reached."""
    found: list[Message] = []
    for message in polled:
        error = message.error()
        if error is not None:
            if error.code() == PARTITION_EOF:
                if offset_of(message) >= offsets.end_offset:
                    return found, True
                continue
            raise plain_error(KafkaException(error), "reading")
        if offset_of(message) >= offsets.end_offset:
            return found, True
        found.append(message)
    return found, False


def offset_of(message: Message) -> int:
    """The offset of a message that the broker delivered."""
    offset = message.offset()
    if offset is None:
        msg = "a delivered message has an offset"
        raise AssertionError(msg)
    return offset


def _position(consumer: Consumer, at: TopicPartition) -> int:
    return int(consumer.position([TopicPartition(at.topic, at.partition)])[0].offset)


def _runs(messages: list[Message]) -> Iterator[list[Message]]:
    """Cut where an offset is missing."""
    start = 0
    for i in range(1, len(messages) + 1):
        if i == len(messages) or offset_of(messages[i]) != offset_of(messages[i - 1]) + 1:
            yield messages[start:i]
            start = i


def _batch(arrays: list[pa.Array], schema: pa.Schema, count: int) -> pa.RecordBatch:
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))


def _headers(message: Message) -> list[dict[str, str | bytes | None]] | None:
    headers = message.headers()
    return [dict(zip(("key", "value"), header, strict=True)) for header in headers] if headers else None


def _time(message: Message) -> int | None:
    kind, time_ms = message.timestamp()
    return time_ms if kind else None


_FIELDS = {
    "key": lambda message: message.key(),
    "value": lambda message: message.value(),
    "headers": _headers,
    "timestamp": _time,
}
