"""Where a partition ends, as a write tells it: what was acknowledged before lies below.

A broker that was deposed, and does not know it, tells where partitions ended then, for a read has no epoch. It cannot
acknowledge a record. That record is aborted, so nobody ever reads it.
"""

from dataclasses import replace

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from spark_cas.core.offsets import Bounds
from spark_cas.core.records import records_of_bytes
from spark_cas.log import clock
from spark_cas.log.kafka import ends
from spark_cas.log.kafka.append.sending import produce
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.ask import ask
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.client.codes import Meaning, meaning_of
from spark_cas.log.kafka.client.rights import on_topic, to_claim
from spark_cas.log.kafka.spec import KafkaSpec


def proven_bounds(admin: Admin, spec: KafkaSpec, at: TopicPartition, transactional_id: str) -> Bounds:
    """As `ends.barrier`, whichever broker answers that. Whoever holds the transactional id is fenced.

    Raises UndecidedError, StorageError.
    """
    doing = f"writing to partition {at.partition} of topic {at.topic}"
    writing = replace(spec, topic=at.topic)
    mark = ask(
        admin, lambda: _mark(writing, at, transactional_id), doing, *to_claim(spec), on_topic("Write", at.topic)
    )
    # Who answered before may be the one that was deposed.
    admin.forget_leaders(at.topic)
    return ends.barrier(admin, at, spec.claim_timeout_ms / 1000, mark)


def _mark(spec: KafkaSpec, at: TopicPartition, transactional_id: str) -> int:
    """The offset of a record that was acknowledged, and is aborted. Raises KafkaException."""
    # With a key, for compacted topics take none without.
    record = records_of_bytes([b"end"], [None])
    producer = TransactionalProducer(spec, transactional_id)
    try:
        producer.init(spec.claim_timeout_ms / 1000)
        producer.begin()
        try:
            sent = produce(producer, at, record, clock.now_ms(), spec.request_seconds)
        finally:
            producer.abort()
    except KafkaException as error:
        if meaning_of(error.args[0].code()) is not Meaning.FENCED:
            raise
        # By somebody who does the same at the same time, and is done soon.
        raise KafkaException(KafkaError(KafkaError.CONCURRENT_TRANSACTIONS)) from None
    finally:
        producer.close()
    if sent is None or sent.range is None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - librdkafka names it so
    return sent.range.base_offset
