"""Reject rows that the brokers would reject because of topic settings, and name rows that the brokers rejected."""

import logging
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import TopicPartition

from spark_cas.core.chunks import Chunk
from spark_cas.core.errors import Fields, RecordTooLargeError, SchemaError
from spark_cas.core.records import record_sizes, row_name
from spark_cas.log import clock
from spark_cas.log.kafka.client.kept_clients import ClientSet
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.kafka.topic.topic_settings import TopicSettings, recent_settings

_LOG = logging.getLogger("spark_cas")

_NO_TIME = -1
"""The timestamp of a record without one, which brokers do not check."""

_BATCH_BYTES = 61
"""The header of a batch, which counts towards the limit of the topic."""

_NOTHING = "Nothing of this chunk was appended."


def require_acceptable(clients: ClientSet, at: TopicPartition, chunk: Chunk) -> None:
    """Reject a chunk with a row that the topic's settings exclude, before anything of it is sent.

    That is a row without a key on a compacted topic, and a timestamp outside the range that the topic accepts.
    Before a rejection the settings are read again. Rows are not checked if this user may not read the settings.
    Raises SchemaError, which names the first such row, and the errors of `topic_settings`.
    """
    records = chunk.records
    keys, times = records.column("key"), records.column("timestamp")
    if not keys.null_count and times.null_count == len(times):
        return
    _warn_of_retention(clients, at, times)
    rejected = None
    for fresh in (False, True):
        settings = recent_settings(clients, at.topic, fresh=fresh)
        rejected = None if settings is None else _rejected(records, settings)
        if rejected is None:
            return
    if rejected is not None:
        row, problem = rejected
        raise SchemaError(f"{_named(chunk, row, at)} {problem}")


def _warn_of_retention(clients: ClientSet, at: TopicPartition, times: pa.ChunkedArray) -> None:
    """Log a warning, at most once a minute, if retention will remove rows because of their timestamps."""
    settings = recent_settings(clients, at.topic)
    if settings is None or not settings.deleted or not settings.create_time or settings.retention_ms < 0:
        return
    oldest = pc.min(times.cast(pa.int64())).as_py()
    if oldest is None or oldest >= clock.now_ms() - settings.retention_ms:
        return
    clients.cached(
        f"warning of retention of {at.topic}",
        lambda: _LOG.warning(
            "rows for topic %s have timestamps older than its retention.ms of %d: the brokers will remove them. "
            "Leave the column timestamp out, or set retention.ms of the topic to -1",
            at.topic,
            settings.retention_ms,
        ),
    )


def too_large(
    clients: ClientSet, at: TopicPartition, chunk: Chunk, nothing: str = _NOTHING
) -> RecordTooLargeError | None:
    """Return the error for a chunk that the client or the broker refused because of a record's size.

    The broker checks the compressed batch. A record that is larger than a batch may be is in a batch of its own.
    Return None if no record is too large, because the topic's limit was lowered while the batches were made, or if
    this user may not read the limit.
    """
    spec: KafkaSpec = clients.readers.spec
    sizes = np.concatenate([record_sizes(each) for each in chunk.records.to_batches()])
    most = spec.most_request_bytes
    if most is not None and int(sizes.max()) > most:
        row = int(np.argmax(sizes > most))
        return RecordTooLargeError(
            f"{_named(chunk, row, at)} takes {int(sizes[row])} bytes, and option kafka.max.request.size is {most}. "
            f"{nothing} Raise that option, or make the record smaller.",
            **_place(chunk, row, at),
        )
    settings = recent_settings(clients, at.topic, fresh=True)
    limit = None if settings is None else settings.max_message_bytes
    if limit is None or int(sizes.max()) + _BATCH_BYTES <= limit:
        return None
    row = _first_over(chunk.records, sizes, spec.compression, limit)
    compressed = "" if spec.compression is None else f" before compression with {spec.compression}"
    return RecordTooLargeError(
        f"{_named(chunk, row, at)} takes {int(sizes[row])} bytes{compressed}, and the brokers rejected its batch: "
        f"max.message.bytes of topic {at.topic} is {limit}. {nothing} Raise max.message.bytes of the topic, or make "
        f"the record smaller.",
        **_place(chunk, row, at),
    )


def _place(chunk: Chunk, row: int, at: TopicPartition) -> Fields:
    return {"partition": at.partition, "row": chunk.rows - chunk.records.num_rows + row}


def _named(chunk: Chunk, row: int, at: TopicPartition) -> str:
    number = chunk.rows - chunk.records.num_rows + row
    return row_name(number, at.partition, chunk.records.column("key")[row].as_py())


def _rejected(records: pa.Table, settings: TopicSettings) -> tuple[int, str] | None:
    """Return the first row that the brokers would reject, and the text of the error after its name."""
    keys, times = records.column("key"), records.column("timestamp")
    if settings.compacted and keys.null_count:
        return _first(pc.is_null(keys)), (
            f"has no key, which brokers reject on a compacted topic (cleanup.policy). {_NOTHING} Give the row a key, "
            f"or set cleanup.policy of the topic to delete."
        )
    if not settings.create_time or times.null_count == len(times):
        return None
    now, numbers = clock.now_ms(), times.cast(pa.int64())
    for name, most_ms, ages in (
        ("before", settings.timestamp_before_max_ms, pc.subtract(now, numbers)),
        ("after", settings.timestamp_after_max_ms, pc.subtract(numbers, now)),
    ):
        outside = pc.and_(pc.greater(ages, most_ms), pc.not_equal(numbers, _NO_TIME))
        if pc.any(outside).as_py():
            row = _first(outside)
            return row, (
                f"has the timestamp {numbers[row].as_py()} (ms since 1970), which is {ages[row].as_py()} ms {name} "
                f"now, and message.timestamp.{name}.max.ms of the topic is {most_ms}. {_NOTHING} Change the "
                f"timestamp (null is the time of the append), or raise that setting of the topic."
            )
    return None


def _first(mask: Any) -> int:  # noqa: ANN401 - pyarrow has no one name for it
    result: int = pc.index(mask, value=True).as_py()
    return result


def _first_over(records: pa.Table, sizes: np.ndarray, compression: str | None, limit: int) -> int:
    """Return the row whose batch was rejected: the first that is larger than the limit, compressed if batches are.

    If none is, as with another compression level, return the largest row.
    """
    rows = np.flatnonzero(sizes + _BATCH_BYTES > limit)
    if compression is not None:
        codec = pa.Codec(compression)
        values = (records.column("value")[int(row)].as_py() or b"" for row in rows)
        rows = rows[[len(codec.compress(each)) > limit for each in values]]
    return int(rows[0]) if len(rows) else int(np.argmax(sizes))
