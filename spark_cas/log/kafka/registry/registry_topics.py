"""Create the compacted topics of the registry: one for plans and completions, one for expansions."""

from confluent_kafka.admin import NewTopic, TopicDescription

from spark_cas.core.errors import LogNotFoundError
from spark_cas.log.deadline import Wait
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.error_text import NotPermittedError
from spark_cas.log.kafka.client.rights import lacking, on_topic
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.kafka.topic.topic_settings import describe
from spark_cas.log.kafka.topic.topics import create_topic

JOB_PARTITIONS = 16
"""A lookup of one job reads one of these partitions. A topic that an administrator created may have any number."""

_SETTINGS = {"cleanup.policy": "compact"}


def create_registry_topics(admin: Admin, spec: KafkaSpec, *, only_try: bool = False) -> None:
    """Create the topics unless they exist. With ``only_try``, check whether that would succeed.

    If the topics exist, permission to create them is not necessary.

    Raises:
        StorageError: The topics cannot be created.
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
    try:
        create_topic(admin, topic, f"creating the registry topic {name}", only_try=only_try)
    except NotPermittedError:
        lack = (
            f"the registry topic {name}, which stores the plans of jobs, does not exist, and "
            f"{lacking(on_topic('Create', name))}. Or create the topic: kafka-topics.sh --create --topic {name} "
            f"--partitions {partitions} --config cleanup.policy=compact."
        )
        raise NotPermittedError(f"{lack} Then run the same job again.", lack) from None


def _await_leaders(admin: Admin, spec: KafkaSpec, name: str) -> None:
    """Wait until the brokers know a new topic, and all its partitions have leaders."""
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
