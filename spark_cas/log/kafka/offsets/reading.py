"""Read the committed records in a range of offsets.

A read detects a partition's end by the end-of-partition event or its position, never by "the record before the end".
Markers and aborted records use up offsets, and are never delivered.
"""

import gc
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from typing import TypeVar

import numpy as np
import pyarrow as pa
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaException,
    Message,
    TopicPartition,
)

from spark_cas.core.errors import ConditionalLogError, StorageError, TrimmedError, UnreadableRecordError
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.records import HEADERS, RECORDS, TIMESTAMP_TYPE, first_since
from spark_cas.log import timing
from spark_cas.log.deadline import Wait, extend
from spark_cas.log.kafka.client.client_errors import (
    BAD_COMPRESSION,
    NO_RIGHT_TO_GROUP,
    OUT_OF_RANGE,
    PARTITION_EOF,
    on_topic,
    passes,
    plain_error,
)
from spark_cas.log.kafka.client.kept_clients import Readers
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec

_POLL_MESSAGES = 10_000
"""The most records per poll. Large records are fewer, because the client queues no more than some MiB."""

_UNWATCHED_SHARE = 0.25
"""The share of a request's time after which a read without progress resumes with a consumer that has statistics."""

_SHORT = _POLL_MESSAGES
"""A read of at most this many offsets completes before it yields records, unless they exceed `_SHORT_BYTES`."""
_SHORT_BYTES = 16 * 1024 * 1024

_Resource = TypeVar("_Resource")


def _unchecked() -> None:
    """Check nothing, because the range was checked before."""


class _QuietError(Exception):
    """A consumer made no progress for a while.

    It may never make any: the brokers reported an empty list of brokers (decision 0011). Or it reads an aborted
    transaction, which its position does not show.
    """


class OvertakenError(StorageError):
    """Records were trimmed while an append checked them. Only a new check of the remaining ones can decide."""


def first_record(readers: Readers, at: TopicPartition, offsets: OffsetRange) -> int | None:
    """Return the offset of the first committed record in a range, or None. Raises OvertakenError, StorageError."""
    result = _each(readers, at, offsets, lambda each: offset_of(each[0]), scanning=True, count=1)
    try:
        return next(result, None)
    except TrimmedError as overtaken:
        raise OvertakenError(overtaken.message) from None


def read_records(
    readers: Readers, at: TopicPartition, offsets: OffsetRange, columns: tuple[str, ...]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (offset of the first record, records at consecutive offsets), in order.

    Raises TrimmedError, StorageError, UnreadableRecordError.
    """
    for result, records in read_with_gaps(readers, at, offsets, columns):
        for start, stop in _runs(result):
            yield int(result[start]), records.slice(start, stop - start)


def read_with_gaps(
    readers: Readers,
    at: TopicPartition,
    offsets: OffsetRange,
    columns: tuple[str, ...],
    check: Callable[[], None] = _unchecked,
) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
    """Yield (offset of each record, records), in order.

    ``check`` runs while the client fetches the first records, before any is yielded. Raises TrimmedError,
    StorageError, UnreadableRecordError, and the errors of ``check``.
    """
    take = partial(_records, columns=columns)
    short = len(offsets) <= _SHORT
    scanning = short and not readers.spec.sets_fetch_wait
    result = _each(readers, at, offsets, take, scanning=scanning, count=_POLL_MESSAGES, check=check)
    return _with_first_read(result) if short else result


def _with_first_read(
    result: Iterator[tuple[np.ndarray, pa.RecordBatch]],
) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
    """Complete a read before yielding its first records, because the caller may process them slowly.

    Meanwhile the client would keep fetching, usually for records after a marker.
    """
    used, size = [], 0
    for each in result:
        used.append(each)
        size += each[1].nbytes
        if size > _SHORT_BYTES:
            break
    yield from used
    yield from result


def read_entries(
    readers: Readers, at: TopicPartition, offsets: OffsetRange
) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """Yield (offset, key, value) of each committed record, in order, for few records and processes that only plan.

    It avoids Arrow, which imports pandas, if installed, for the first list that it converts: 0.2 s of CPU time.

    Raises TrimmedError, StorageError.
    """

    def take(messages: list[Message]) -> list[tuple[int, bytes | None, bytes | None]]:
        return [(offset_of(each), each.key(), each.value()) for each in messages]

    for entries in _each(readers, at, offsets, take, scanning=True, count=_POLL_MESSAGES):
        yield from entries


def first_offset_since(readers: Readers, at: TopicPartition, offsets: OffsetRange, timestamp_ms: int) -> int | None:
    """Return the offset of the first committed record in a range with a timestamp of at least this time.

    The read stops there, so it takes one fetch if the range begins at or just before the record. Raises TrimmedError,
    StorageError.
    """

    def take(messages: list[Message]) -> int | None:
        records = pa.RecordBatch.from_arrays([_stamps(messages)["timestamp"]], ["timestamp"])
        position = first_since(records, timestamp_ms)
        return None if position is None else offset_of(messages[position])

    # A list, because a read that completes leaves its consumer for the next one.
    return next(iter([*_each(readers, at, offsets, take, scanning=True, count=_POLL_MESSAGES, once=True)]), None)


def _each(
    readers: Readers,
    at: TopicPartition,
    offsets: OffsetRange,
    take: Callable[[list[Message]], _Resource | None],
    *,
    scanning: bool,
    count: int,
    check: Callable[[], None] = _unchecked,
    once: bool = False,
) -> Iterator[_Resource]:
    """Yield the result of ``take`` for the committed messages of a range, some messages at a time.

    No message outlives its call of ``take``. Arriving data extends the deadline, even if the client delivers none of
    it, as inside a large aborted transaction. The first consumer reports only its position. If that does not move for
    a while, another consumer resumes, whose statistics show how far it has fetched.
    With ``once`` the read ends after the first result other than None.
    """
    if len(offsets) == 0:
        check()
        return
    doing = f"reading partition {at.partition} of topic {at.topic}"
    patience_seconds, request_seconds = readers.spec.patience_seconds, readers.spec.request_seconds
    reached, ended = offsets.base_offset, False
    fetched: FetchPosition | None = None
    quiet_seconds = _UNWATCHED_SHARE * min(patience_seconds, request_seconds)
    wait = Wait(patience_seconds, doing)
    while not ended:
        statistics = None if fetched is None else fetched.take
        with suppress(_QuietError), readers.borrow(at.topic, scanning=scanning, statistics=statistics) as consumer:
            try:
                consumer.assign([TopicPartition(at.topic, at.partition, reached)])
                check()
                check = _unchecked
                since = time.monotonic()
                while not ended:
                    used, ended = _take(consumer, count, offsets, take)
                    before, reached = reached, max(reached, _position(consumer, at))
                    ended = ended or reached >= offsets.end_offset or (once and used is not None)
                    if ended:
                        # The caller may process the last records slowly, and the client would keep fetching.
                        consumer.unassign()
                    if used is not None:
                        yield used
                    # Only data counts: the client repeats an error for as long as it lasts.
                    if reached > before or (fetched is not None and fetched.advanced()):
                        extend(patience_seconds)
                        wait, since = Wait(patience_seconds, doing), time.monotonic()
                    elif not ended and not wait.again("the brokers give no records"):
                        raise StorageError(
                            f"{doing}: the brokers gave no records from offset {reached} on for {wait.waited:.0f} s. "
                            f"Check that they are well, then read again."
                        )
                    if not ended and time.monotonic() - since > quiet_seconds:
                        # Each consumer after the second one has twice the time of the one before.
                        quiet_seconds = request_seconds if fetched is None else 2 * quiet_seconds
                        fetched = FetchPosition(at.topic, at.partition, reached)
                        raise _QuietError
            except KafkaException as error:
                raise _failure(readers.spec, consumer, at, reached, error) from None


def _failure(
    spec: KafkaSpec, consumer: Consumer, at: TopicPartition, reached: int, error: KafkaException
) -> ConditionalLogError:
    message = plain_error(error, f"reading topic {at.topic}", on_topic("Read", at.topic))
    if error.args[0].code() != OUT_OF_RANGE:
        return message
    try:
        start_offset = consumer.get_watermark_offsets(at, spec.request_seconds)[0]
        reached = max(reached, _position(consumer, at))
    except KafkaException:
        return message
    if start_offset <= reached:
        return message
    return TrimmedError(
        f"partition {at.partition} of topic {at.topic}: offsets {reached} to {start_offset - 1} were removed while "
        f"they were to be read, by retention or by an administrator. Read again, from offset {start_offset} on.",
        partition=at.partition,
    )


def _take(
    consumer: Consumer, count: int, offsets: OffsetRange, take: Callable[[list[Message]], _Resource | None]
) -> tuple[_Resource | None, bool]:
    """Call ``take`` with the next message and the queued ones. Return its result, and whether the range ended."""
    first = consumer.poll(timing.current().consumer_poll)
    if first is None:
        return None, False
    with _no_collection():
        # Without a timeout, because `consume` would wait for all of the requested messages.
        polled = [first, *consumer.consume(count - 1, 0)] if count > 1 else [first]
        result, ended = _within(polled, offsets)
        return take(result) if result else None, ended


@contextmanager
def _no_collection() -> Iterator[None]:
    """Prevent the garbage collector from scanning thousands of messages, which takes a third of a read's time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _within(polled: list[Message], offsets: OffsetRange) -> tuple[list[Message], bool]:
    """Return the messages of a range, and whether its end was reached."""
    if not any(map(Message.error, polled)):
        if not polled or offset_of(polled[-1]) < offsets.end_offset:
            return polled, False
        return polled[: int(np.searchsorted(_offsets(polled), offsets.end_offset))], True
    result: list[Message] = []
    for message in polled:
        error = message.error()
        if error is not None and _is_retried(error.code()):
            continue
        if error is not None and error.code() not in (PARTITION_EOF, BAD_COMPRESSION):
            raise KafkaException(error)
        if offset_of(message) >= offsets.end_offset:
            return result, True
        if error is None:
            result.append(message)
        elif error.code() == BAD_COMPRESSION:
            raise _unreadable(
                message,
                f"the batch of records at offset {offset_of(message)} cannot be decompressed, or is too large when "
                f"it is. Read from an offset after the batch, or delete the records before that offset.",
            )
    return result, False


def _is_retried(code: int) -> bool:
    """Return whether the client resumes after an error by itself, as it does when the partition's leader is back."""
    return code == NO_RIGHT_TO_GROUP or (code != OUT_OF_RANGE and passes(code, reached=True))


def offset_of(message: Message) -> int:
    """Return the offset of a message that the broker delivered."""
    offset = message.offset()
    if offset is None:
        raise AssertionError("a delivered message has an offset")
    return offset


def _position(consumer: Consumer, at: TopicPartition) -> int:
    return int(consumer.position([TopicPartition(at.topic, at.partition)])[0].offset)


def _offsets(messages: list[Message]) -> np.ndarray:
    return np.fromiter(map(Message.offset, messages), np.int64, len(messages))


def _runs(offsets: np.ndarray) -> Iterator[tuple[int, int]]:
    """Return the half-open ranges of positions with consecutive offsets."""
    cuts = np.flatnonzero(np.diff(offsets) != 1) + 1
    return zip([0, *cuts.tolist()], [*cuts.tolist(), len(offsets)], strict=True)


def _records(messages: list[Message], columns: tuple[str, ...]) -> tuple[np.ndarray, pa.RecordBatch]:
    """Return the offsets of messages and the requested columns, without work for other columns."""
    offsets = _offsets(messages)
    if not columns:
        return offsets, pa.RecordBatch.from_struct_array(pa.array([{}] * len(messages), pa.struct([])))
    stamps = {} if _STAMPS.isdisjoint(columns) else _stamps(messages)
    arrays = [stamps[name] if name in stamps else _COLUMNS[name](messages) for name in columns]
    if any(isinstance(each, pa.ChunkedArray) for each in arrays):
        raise _unreadable(
            messages[0],
            f"the records at offsets {offsets[0]} to {offsets[-1]} exceed 2 GiB when they are decompressed. Set the "
            f"option kafka.max.partition.fetch.bytes to the size of one batch to read fewer at a time.",
        )
    return offsets, pa.RecordBatch.from_arrays(arrays, names=columns)


_STAMPS = frozenset({"timestamp", TIMESTAMP_TYPE})


def _stamps(messages: list[Message]) -> dict[str, pa.Array]:
    """Return the columns `_STAMPS`: the timestamps, null for a message without one, and their types."""
    pairs = np.fromiter(chain.from_iterable(map(Message.timestamp, messages)), np.int64, 2 * len(messages))
    kinds, times = pairs[0::2], pairs[1::2]
    return {
        "timestamp": pa.array(times, mask=kinds == TIMESTAMP_NOT_AVAILABLE).cast(RECORDS.field("timestamp").type),
        TIMESTAMP_TYPE: pa.array(kinds.astype(np.int32) - TIMESTAMP_CREATE_TIME),
    }


def _headers(messages: list[Message]) -> pa.Array:
    """Return the headers of each message, null for a message without any. Raises UnreadableRecordError."""
    # If a key is no text, the client (confluent-kafka 2.16) sets an error and still returns a list. `map`
    # checks for that, CPython's fast path for a direct call does not. A second call returns the list with no error.
    remaining = iter(messages)
    try:
        headers = list(map(Message.headers, remaining))
    except (SystemError, UnicodeDecodeError) as error:
        if not isinstance(error.__cause__ or error, UnicodeDecodeError):
            raise
        message = messages[-1 - len(list(remaining))]
        raise _unreadable(
            message,
            f"the record at offset {offset_of(message)} has a header whose key is not UTF-8 text, which the column "
            f"headers cannot hold. Read without that column (includeHeaders=false), or from offset "
            f"{offset_of(message) + 1}.",
        ) from None
    if not any(headers):
        return pa.nulls(len(messages), HEADERS)
    # Arrow reads a list of pairs as structs, by position.
    return pa.array(headers, HEADERS)


def _unreadable(message: Message, reason: str) -> UnreadableRecordError:
    partition = int(message.partition() or 0)
    place = f"partition {partition} of topic {message.topic()}"
    return UnreadableRecordError(f"{place}: {reason}", partition=partition, offset=offset_of(message))


_COLUMNS: dict[str, Callable[[list[Message]], pa.Array]] = {
    "key": lambda messages: pa.array(list(map(Message.key, messages)), pa.binary()),
    "value": lambda messages: pa.array(list(map(Message.value, messages)), pa.binary()),
    "headers": _headers,
}


class FetchPosition:
    """The largest offset up to which one consumer has fetched a partition."""

    def __init__(self, topic: str, partition: int, start_offset: int) -> None:
        self._topic = topic
        self._partition = str(partition)
        self._fetched = self._known = start_offset

    def take(self, statistics: str) -> None:
        """Read the client's statistics, which are a JSON object (librdkafka's STATISTICS.md)."""
        topic = json.loads(statistics)["topics"].get(self._topic)
        partition = None if topic is None else topic["partitions"].get(self._partition)
        if partition is not None:
            self._fetched = max(self._fetched, partition["next_offset"])

    def advanced(self) -> bool:
        """Whether the client has fetched more since the last call."""
        before, self._known = self._known, self._fetched
        return self._fetched > before
