"""Find the end of a partition by a write, so that every record acknowledged earlier is below it.

A stale leader returns old end offsets, because a read has no epoch, but it cannot acknowledge a record. The record is
aborted, so no reader sees it.
"""

from dataclasses import replace

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from spark_cas.core.errors import StorageError
from spark_cas.core.offsets import Bounds
from spark_cas.core.records import records_of_bytes
from spark_cas.log import clock
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.ask import ask
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.client.codes import Meaning, meaning_of
from spark_cas.log.kafka.client.rights import on_topic, to_claim
from spark_cas.log.kafka.client.sending import produce
from spark_cas.log.kafka.offsets import end_offsets
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec


def proven_bounds(admin: Admin, spec: KafkaSpec, at: TopicPartition, transactional_id: str) -> Bounds:
    """Return the bounds as `end_offsets.barrier`, but never those of a stale leader.

    Fence the owner of the transactional id.

    Raises:
        UndecidedError: A transaction is still open after the timeout of the spec.
        StorageError: The brokers did not acknowledge the record, or do not report it.
    """
    doing = f"writing to partition {at.partition} of topic {at.topic}"
    writing = replace(spec, topic=at.topic)
    mark = ask(
        admin, lambda: _mark(writing, at, transactional_id), doing, *to_claim(spec), on_topic("Write", at.topic)
    )
    # The client may still use a stale leader.
    admin.forget_leaders(at.topic)
    bounds = end_offsets.barrier(admin, at, spec.open_transaction_wait_ms / 1000, mark)
    if bounds.end_offset < mark:
        raise StorageError(
            f"{doing}: its leader reports the end offset {bounds.end_offset}, although another broker acknowledged "
            f"offset {mark}. Check that the brokers are well, then run the same command again."
        )
    return bounds


def _mark(spec: KafkaSpec, at: TopicPartition, transactional_id: str) -> int:
    """Append a record, abort it, and return its offset. Raises KafkaException."""
    # Compacted topics reject records without a key.
    record = records_of_bytes([b"end"], [None])
    producer = TransactionalProducer(spec, transactional_id)
    try:
        producer.init(spec.open_transaction_wait_ms / 1000)
        producer.begin()
        try:
            sent = produce(producer, at, record, clock.now_ms(), spec.request_seconds)
        finally:
            producer.abort()
    except KafkaException as error:
        if meaning_of(error.args[0].code()) is not Meaning.FENCED:
            raise
        # Another process does the same at this moment, and completes soon.
        raise KafkaException(KafkaError(KafkaError.CONCURRENT_TRANSACTIONS)) from None
    finally:
        producer.close()
    if sent is None or sent.range is None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - librdkafka names it so
    return sent.range.base_offset
