"""Fence writers and add partitions: the steps of an expansion that change state on the brokers.

A writer of a partition uses the partition's transactional id. If it expects no offset, the id has the name of its job
in it. All jobs are in the registry, because a plan is recorded before its first claim. So after the intent is
recorded, all ids that an earlier claim may use are known. The expansion takes each id over: the brokers abort its
open transaction and reject all later requests of its writer, however late. Later claims read the intent.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewPartitions

from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.ask import ask
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.client.error_text import plain_error
from spark_cas.log.kafka.client.rights import Right, on_topic, to_claim
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.kafka.topic.topic_settings import describe

_AT_ONCE = 8


def fence(spec: KafkaSpec, ids: Iterable[str]) -> None:
    """Take over transactional ids. The brokers abort their open transactions and reject their writers.

    Raises:
        StorageError.
    """
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for used in [threads.submit(_take_over, spec, each) for each in ids]:
            used.result()


def add_partitions(admin: Admin, topic: str, partitions: int, *, trying: bool = False) -> None:
    """Expand a topic to at least this many partitions. With ``trying``, only have the brokers validate the request.

    Raises:
        LogNotFoundError, StorageError.
    """
    if len(describe(admin, topic).partitions) >= partitions:
        return

    def question() -> None:
        requested = admin.client.create_partitions(
            [NewPartitions(topic, partitions)], request_timeout=admin.request_seconds, validate_only=trying
        )
        try:
            admin.answer(requested[topic])
        except KafkaException as error:
            # Another process may have added the partitions meanwhile.
            if error.args[0].code() != KafkaError.INVALID_PARTITIONS:
                raise

    ask(admin, question, f"adding partitions to topic {topic}", on_topic("Alter", topic))


def _take_over(spec: KafkaSpec, transactional_id: str) -> None:
    producer = TransactionalProducer(spec, transactional_id)
    try:
        producer.init(spec.open_transaction_wait_ms / 1000)
    except KafkaException as error:
        own = transactional_id.startswith(f"{spec.prefix}/")
        rights = to_claim(spec) if own else (Right("Write", "transactional-id", transactional_id),)
        raise plain_error(error, "fencing a transactional id", *rights) from None
    finally:
        producer.close()
