"""The steps of an expansion that change something on the brokers: writers are fenced, partitions are made.

Who writes a partition holds its transactional id, or, without a claim to an offset, one with the name of the job in
it. All jobs are in the registry: a plan is recorded before anything is claimed by it. So once the intent is there,
the ids that can be held by a claim from before it are known, and each is taken over: what its holder has open is
aborted, and the brokers take nothing of it any more, however long it slept. Whoever claims later reads of the intent.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewPartitions

from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.ask import ask
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.client.error_text import plain_error
from spark_cas.log.kafka.client.rights import on_topic, to_claim
from spark_cas.log.kafka.spec import KafkaSpec
from spark_cas.log.kafka.topic_settings import describe

_AT_ONCE = 8


def fence(spec: KafkaSpec, ids: Iterable[str]) -> None:
    """Take over transactional ids: what their holders have open is aborted, and no more of them taken.

    Raises StorageError.
    """
    try:
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            for taken in [threads.submit(_take_over, spec, each) for each in ids]:
                taken.result()
    except KafkaException as error:
        raise plain_error(error, "claiming a partition", *to_claim(spec)) from None


def add_partitions(admin: Admin, topic: str, partitions: int, *, trying: bool = False) -> None:
    """Let a topic have at least so many partitions, or with ``trying`` only have the brokers say whether it may.

    Raises LogNotFoundError, StorageError.
    """
    if len(describe(admin, topic).partitions) >= partitions:
        return

    def question() -> None:
        asked = admin.client.create_partitions(
            [NewPartitions(topic, partitions)], request_timeout=admin.request_seconds, validate_only=trying
        )
        try:
            admin.answer(asked[topic])
        except KafkaException as error:
            # Somebody else may have added them, and a broker may not have known.
            if error.args[0].code() != KafkaError.INVALID_PARTITIONS:
                raise

    ask(admin, question, f"adding partitions to topic {topic}", on_topic("Alter", topic))


def _take_over(spec: KafkaSpec, transactional_id: str) -> None:
    producer = TransactionalProducer(spec, transactional_id)
    try:
        producer.init(spec.claim_timeout_ms / 1000)
    finally:
        producer.close()
