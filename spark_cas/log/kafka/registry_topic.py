"""The topics of the registry, compacted: plans and completions, and expansions; made when they are missing."""

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic, TopicDescription

from spark_cas.core.errors import LogNotFoundError
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.error_text import NotPermittedError, plain_error
from spark_cas.log.kafka.client.rights import NOT_PERMITTED, lacking, on_topic
from spark_cas.log.kafka.spec import KafkaSpec
from spark_cas.log.kafka.topic_settings import describe
from spark_cas.log.patience import Wait

JOB_PARTITIONS = 16
"""Who looks for one job reads one of them. A topic that somebody else made may have any number."""

_SETTINGS = {"cleanup.policy": "compact"}


def create_registry_topics(admin: Admin, spec: KafkaSpec, *, only_try: bool = False) -> None:
    """Make the topics unless they are there; with ``only_try``, find out whether that would succeed.

    Whoever made them before, an administrator perhaps, the right to make them is not needed then.

    Raises StorageError.
    """
    for name, partitions in ((spec.registry_topic, JOB_PARTITIONS), (spec.layouts_topic, 1)):
        try:
            describe(admin, name)
        except LogNotFoundError:
            _create(admin, name, partitions, only_try=only_try)
            if not only_try:
                _await_leaders(admin, spec, name)


def _create(admin: Admin, name: str, partitions: int, *, only_try: bool) -> None:
    topic = NewTopic(name, partitions, -1, config=_SETTINGS)
    asked = admin.create_topics([topic], validate_only=only_try, request_timeout=admin.request_seconds)
    try:
        admin.answer(asked[name])
    except KafkaException as error:
        code = error.args[0].code()
        if code == KafkaError.TOPIC_ALREADY_EXISTS:
            return
        if code in NOT_PERMITTED:
            raise NotPermittedError(
                f"the registry topic {name}, which holds what is recorded of jobs, is not there, and "
                f"{lacking(on_topic('Create', name))}. Or makes the topic: kafka-topics.sh --create --topic {name} "
                f"--partitions {partitions} --config cleanup.policy=compact. Then run the same job again."
            ) from None
        raise plain_error(error, f"creating the registry topic {name}") from None


def _await_leaders(admin: Admin, spec: KafkaSpec, name: str) -> None:
    """A topic is known to its brokers, and led, a little after it was made."""
    wait = Wait(spec.patience_seconds, f"creating the registry topic {name}")
    while True:
        try:
            if _is_led(describe(admin, name)):
                return
        except LogNotFoundError:
            pass
        if not wait.again("its partitions have no leaders yet"):
            return


def _is_led(description: TopicDescription) -> bool:
    return all(getattr(each.leader, "id", -1) >= 0 for each in description.partitions)
