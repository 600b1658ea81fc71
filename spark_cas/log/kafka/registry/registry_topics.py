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


def registry_topics(spec: KafkaSpec) -> list[NewTopic]:
    """Return the topics, as this package creates them."""
    counts = {spec.registry_topic: JOB_PARTITIONS, spec.layouts_topic: 1}
    return [NewTopic(name, partitions, -1, config=_SETTINGS) for name, partitions in counts.items()]


def create_registry_topics(admin: Admin, spec: KafkaSpec) -> None:
    """Create the topics unless they exist. If they exist, permission to create them is not necessary.

    Raises:
        StorageError: The topics cannot be created.
    """
    for topic in registry_topics(spec):
        try:
            describe(admin, topic.topic)
        except LogNotFoundError:
            create_registry_topic(admin, topic)
            _await_leaders(admin, spec, topic.topic)


def create_registry_topic(admin: Admin, topic: NewTopic, *, only_try: bool = False) -> None:
    """Create a missing topic. With ``only_try``, check whether that would succeed. Raises StorageError."""
    name = topic.topic
    try:
        create_topic(admin, topic, f"creating the registry topic {name}", only_try=only_try)
    except NotPermittedError:
        lack = (
            f"the registry topic {name}, which stores the plans of jobs, does not exist, and "
            f"{lacking(on_topic('Create', name))}. Or create the topic: kafka-topics.sh --create --topic {name} "
            f"--partitions {topic.num_partitions} --config cleanup.policy=compact."
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
