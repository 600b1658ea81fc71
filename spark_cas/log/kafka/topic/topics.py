"""List the topics of the brokers, and create topics."""

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.ask import ask
from spark_cas.log.kafka.client.clients import admin_client
from spark_cas.log.kafka.client.rights import on_topic
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec

_FENCED = "fenced"
"""The word that brokers (3.x, 4.x) use for registered brokers that are not active yet.

The error code alone also means that there are too few brokers.

Remove this when Kafka has a code of its own for fenced brokers.
"""
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
