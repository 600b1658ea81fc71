"""Where a partition ends, as a write tells it: what was acknowledged before lies below.

A broker that was deposed, and does not know it, tells where partitions ended then, for a read has no epoch. It cannot
acknowledge a record. That record is aborted, so nobody ever reads it.
"""

import random
from dataclasses import replace

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from spark_cas.core.offsets import Bounds
from spark_cas.core.records import RECORDS
from spark_cas.log import clock
from spark_cas.log.kafka import ends
from spark_cas.log.kafka.append.sending import produce
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.ask import ask
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.client.rights import on_topic, to_claim
from spark_cas.log.kafka.spec import KafkaSpec

_IDS = 1024
"""As the registry's: brokers keep ids for days."""
_MARK = pa.table([[b"end"], [None], [None], [None]], schema=RECORDS)
"""With a key, for compacted topics take none without."""

_CHANCE = random.SystemRandom()


def proven_bounds(admin: Admin, spec: KafkaSpec, at: TopicPartition) -> Bounds:
    """As `ends.barrier`, whichever broker answers that. Raises UndecidedError, StorageError."""
    doing = f"writing to partition {at.partition} of topic {at.topic}"
    mark = ask(admin, lambda: _mark(spec, at), doing, *to_claim(spec), on_topic("Write", at.topic))
    # Who answered before may be the one that was deposed.
    admin.forget_leaders(at.topic)
    return ends.barrier(admin, at, spec.claim_timeout_ms / 1000, mark)


def _mark(spec: KafkaSpec, at: TopicPartition) -> int:
    """The offset of a record that was acknowledged, and is aborted. Raises KafkaException."""
    own_id = f"{spec.prefix}/{at.topic}/{_CHANCE.randrange(_IDS)}"
    producer = TransactionalProducer(replace(spec, topic=at.topic), own_id)
    try:
        producer.init(spec.request_seconds)
        producer.begin()
        try:
            sent = produce(producer, at, _MARK, clock.now_ms(), spec.request_seconds)
        finally:
            producer.abort()
    finally:
        producer.close()
    if sent is None or sent.range is None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - librdkafka names it so
    return sent.range.base_offset
