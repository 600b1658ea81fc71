"""List, create and expand topics, among them the compacted topics of the registry."""

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewPartitions, NewTopic

from spark_cas.core.errors import LogNotFoundError
from spark_cas.log.deadline import Wait
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.ask import ask
from spark_cas.log.kafka.client.clients import admin_client
from spark_cas.log.kafka.client.error_text import NotPermittedError, lacking, on_topic
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.kafka.topic.topic_settings import describe, leader_of

_FENCED = "fenced"
"""The word that brokers (3.x, 4.x) use for registered brokers that are not active yet.

The error code alone also means that there are too few brokers.

Remove this when Kafka has a code of its own for fenced brokers.
"""
JOB_PARTITIONS = 16
"""A lookup of one job reads one of these partitions. A topic that an administrator created may have any number."""
_OF_THE_BROKERS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class Topics:
    """The topics that this principal can see. It keeps its client, because streams list the topics repeatedly."""

    def __init__(self, spec: KafkaSpec) -> None:
        self._admin = admin_client(spec)
        self._not_these = _OF_THE_BROKERS | {spec.registry_topic, spec.layouts_topic}

    def names(self) -> tuple[str, ...]:
        """Return the sorted names, without the registry topics and the brokers' internal topics.

        Raises StorageError.
        """
        admin = self._admin
        result = ask(
            admin, lambda: admin.client.list_topics(timeout=admin.request_seconds).topics, "looking for topics"
        )
        return tuple(sorted(result.keys() - self._not_these))


def create_topic(admin: Admin, topic: NewTopic, doing: str, *, only_try: bool = False) -> None:
    """Create a topic unless one with this name exists. With ``only_try``, check whether that would succeed.

    Args:
        admin: The client.
        topic: The topic to create, with its partition count and settings.
        doing: The beginning of an error text.
        only_try: Validate the request, but create nothing.

    Raises:
        StorageError: The brokers rejected the request, or did not answer.
    """

    def question() -> None:
        requested = admin.client.create_topics([topic], validate_only=only_try, request_timeout=admin.request_seconds)
        try:
            admin.answer(requested[topic.topic])
        except KafkaException as error:
            failure = error.args[0]
            if failure.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if failure.code() == KafkaError.INVALID_REPLICATION_FACTOR and _FENCED in failure.str():
                # Returned while restarted brokers are still fenced. For too few brokers the text differs.
                raise KafkaException(KafkaError(KafkaError.BROKER_NOT_AVAILABLE)) from None
            raise

    ask(admin, question, doing, on_topic("Create", topic.topic))


def add_partitions(admin: Admin, topic: str, partitions: int, *, only_try: bool = False) -> None:
    """Expand a topic to at least this many partitions. With ``only_try``, the brokers only validate the request.

    Raises LogNotFoundError, StorageError.
    """
    if len(describe(admin, topic).partitions) >= partitions:
        return

    def question() -> None:
        requested = admin.client.create_partitions(
            [NewPartitions(topic, partitions)], request_timeout=admin.request_seconds, validate_only=only_try
        )
        try:
            admin.answer(requested[topic])
        except KafkaException as error:
            # Another process may have added the partitions meanwhile.
            if error.args[0].code() != KafkaError.INVALID_PARTITIONS:
                raise

    ask(admin, question, f"adding partitions to topic {topic}", on_topic("Alter", topic))


def registry_topics(spec: KafkaSpec) -> list[NewTopic]:
    """Return the topics of plans and completions, and of expansions, as this package creates them."""
    counts, settings = {spec.registry_topic: JOB_PARTITIONS, spec.layouts_topic: 1}, {"cleanup.policy": "compact"}
    return [NewTopic(name, partitions, -1, config=settings) for name, partitions in counts.items()]


def create_registry_topics(admin: Admin, spec: KafkaSpec) -> None:
    """Create the topics of the registry unless they exist. If they exist, permission to create them is not necessary.

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
    """Create a missing topic of the registry as `create_topic`. Raises StorageError."""
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
            if all(leader_of(each) >= 0 for each in describe(admin, name).partitions):
                return
        except LogNotFoundError:
            pass
        if not wait.again("its partitions have no leaders yet"):
            return
