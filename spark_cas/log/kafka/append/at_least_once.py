"""Append without a transaction: a plain producer appends at the current end, and fences no other producer.

The producer may be idempotent. Then a retried request is stored once, and a request that the broker reports as a
duplicate succeeds without an offset (KIP-192). Nothing is rolled back: if a chunk fails, some of its records may
stay.
"""

from confluent_kafka import KafkaException, TopicPartition

from spark_cas.core.chunks import Chunk
from spark_cas.core.errors import NotStoredError
from spark_cas.core.guarantee import AT_LEAST_ONCE
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Appended, Outcome, Unknown
from spark_cas.core.plan import Layout
from spark_cas.log.kafka.append.placement import Landed
from spark_cas.log.kafka.append.row_checks import require_acceptable, too_large
from spark_cas.log.kafka.client.client_errors import (
    NOT_PERMITTED,
    TOO_LARGE,
    Meaning,
    meaning_of,
    missing,
    on_topic,
    reason_of,
)
from spark_cas.log.kafka.client.clients import PlainProducer
from spark_cas.log.kafka.client.kept_clients import ClientSet
from spark_cas.log.kafka.client.sending import Reports, await_delivery, held_back, refuse_unsendable
from spark_cas.log.kafka.offsets import end_offsets
from spark_cas.log.kafka.registry.layouts import TopicLayouts
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.kafka.topic.topic_settings import recent_settings


class BlindAppends:
    """The blind appends of one process to a topic."""

    def __init__(self, spec: KafkaSpec, clients: ClientSet, layouts: TopicLayouts) -> None:
        self._spec = spec
        self._clients = clients
        self._admin = clients.admin
        self._layouts = layouts
        self._producer: PlainProducer | None = None
        self._guarantee = ""

    def append(self, at: TopicPartition, layout: Layout, chunk: Chunk, guarantee: str) -> Outcome:
        """Append a chunk as `spark_cas.log.protocol.Blind`. Also raises SchemaError."""
        refuse_unsendable(chunk.records)
        changed = self._layouts.changed_since_read(layout)
        if changed is not None:
            return changed
        require_acceptable(self._clients, at, chunk)
        before = end_offsets.bounds_to_high_watermark(self._admin, at)
        try:
            producer = self._ready(guarantee)
            reports = Reports.of(chunk.records, chunk.time_ms)
            producer.client.hand_over(at.partition, chunk.records, chunk.time_ms, reports)
            last = held_back(chunk.records, producer.request_bytes)
            served = await_delivery(
                producer, last, self._spec.patience_seconds, until=lambda: reports.error is not None
            )
            failed = reports.error
        except KafkaException as error:
            served, failed = False, error.args[0]
        if served and failed is None:
            return self._acknowledged(at, chunk, before, reports)
        self.close()
        if failed is None:
            return Unknown("the brokers did not acknowledge all of them in time")
        code = failed.code()
        some = "Other rows of this chunk may be in the log."
        rejected = too_large(self._clients, at, chunk, some) if code == TOO_LARGE else None
        if rejected is not None:
            raise rejected
        if meaning_of(code) is Meaning.REFUSED:
            raise _not_stored(code, at.topic)
        return Unknown(f"the brokers did not acknowledge all of them ({reason_of(code)})")

    def close(self) -> None:
        """Close the producer. Records that were not acknowledged are not sent again."""
        if self._producer is not None:
            self._producer.close()
        self._producer = None

    def _ready(self, guarantee: str) -> PlainProducer:
        if self._producer is None or self._guarantee != guarantee:
            self.close()
            settings = recent_settings(self._clients, self._spec.topic, fresh=True)
            most = None if settings is None else settings.max_message_bytes
            self._producer = PlainProducer(self._spec, most, idempotent=guarantee != AT_LEAST_ONCE)
            self._guarantee = guarantee
        return self._producer

    def _acknowledged(self, at: TopicPartition, chunk: Chunk, before: Bounds, reports: Reports) -> Appended:
        """Return the offsets that the brokers reported, or else the range between the old and the new end."""
        result, end = reports.range, before.end_offset
        if result is None:
            result = OffsetRange(end, max(end, end_offsets.high_watermark(self._admin, at)))
        sent = Landed(result, reports.range is not None, reports.explicit_ms)
        return sent.appended(chunk.records.num_rows, before.start_offset)


def _not_stored(code: int, topic: str) -> NotStoredError:
    lacks = code in NOT_PERMITTED
    why = missing(code, (on_topic("Write", topic),)) if lacks else reason_of(code)
    return NotStoredError(f"appending to topic {topic}: {why}.")
