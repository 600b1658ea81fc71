"""The topic of plans and completions: compacted, of one partition, made when it is not there."""

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from spark_cas.core.errors import LogNotFoundError
from spark_cas.log.kafka.admin import Admin
from spark_cas.log.kafka.plain import NotPermittedError, plain_error
from spark_cas.log.kafka.rights import NOT_PERMITTED, lacking, on_topic
from spark_cas.log.kafka.topic_settings import describe

_SETTINGS = {"cleanup.policy": "compact"}


def create_registry_topic(admin: Admin, name: str, *, only_try: bool = False) -> None:
    """Make the topic unless it is there; with ``only_try``, find out whether that would succeed.

    Whoever made it before, an administrator perhaps, the right to make it is not needed then. Raises StorageError.
    """
    try:
        describe(admin, name)
    except LogNotFoundError:
        _create(admin, name, only_try=only_try)


def _create(admin: Admin, name: str, *, only_try: bool) -> None:
    topic = NewTopic(name, 1, -1, config=_SETTINGS)
    asked = admin.create_topics([topic], validate_only=only_try, request_timeout=admin.request_seconds)
    try:
        admin.answer(asked[name])
    except KafkaException as error:
        code = error.args[0].code()
        if code == KafkaError.TOPIC_ALREADY_EXISTS:
            return
        if code in NOT_PERMITTED:
            raise NotPermittedError(
                f"the registry topic {name}, which holds plans, is not there, and "
                f"{lacking(on_topic('Create', name))}. Or makes the topic: kafka-topics.sh --create --topic {name} "
                f"--partitions 1 --config cleanup.policy=compact. Then run the same job again."
            ) from None
        raise plain_error(error, f"creating the registry topic {name}") from None
