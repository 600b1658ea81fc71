"""Which topics the brokers have, and how one is made."""

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.ask import ask
from spark_cas.log.kafka.client.clients import admin_client
from spark_cas.log.kafka.client.rights import on_topic
from spark_cas.log.kafka.spec import KafkaSpec

_FENCED = "fenced"
"""What a broker (3.x, 4.x) says of those that are registered and not yet trusted; the code alone also means too few.

It can go when that has a code of its own.
"""
_OF_THE_BROKERS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class Topics:
    """The topics that this principal sees. The client is kept, for streams ask again and again."""

    def __init__(self, spec: KafkaSpec) -> None:
        self._admin = admin_client(spec)
        self._not_these = _OF_THE_BROKERS | {spec.registry_topic, spec.layouts_topic}

    def names(self) -> tuple[str, ...]:
        """Their names, sorted, but for the brokers' own and the registry. Raises StorageError."""
        admin = self._admin
        found = ask(
            admin, lambda: admin.client.list_topics(timeout=admin.request_seconds).topics, "looking for topics"
        )
        return tuple(sorted(found.keys() - self._not_these))


def create_topic(admin: Admin, topic: NewTopic, doing: str, *, only_try: bool = False) -> None:
    """Make a topic unless there is one of its name; with ``only_try``, find out whether that would succeed.

    ``doing`` begins the text of an error. Raises StorageError.
    """

    def question() -> None:
        asked = admin.client.create_topics([topic], validate_only=only_try, request_timeout=admin.request_seconds)
        try:
            admin.answer(asked[topic.topic])
        except KafkaException as error:
            failure = error.args[0]
            if failure.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if failure.code() == KafkaError.INVALID_REPLICATION_FACTOR and _FENCED in failure.str():
                # Said while brokers are back and not yet trusted; of too few brokers other words are said.
                raise KafkaException(KafkaError(KafkaError.BROKER_NOT_AVAILABLE)) from None
            raise

    ask(admin, question, doing, on_topic("Create", topic.topic))
