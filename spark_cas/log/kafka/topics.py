"""Which topics the brokers have."""

from spark_cas.log.kafka.client.clients import admin_client
from spark_cas.log.kafka.client.retry import ask
from spark_cas.log.kafka.spec import KafkaSpec

_OF_THE_BROKERS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class Topics:
    """The topics that this principal sees. The client is kept, for streams ask again and again."""

    def __init__(self, spec: KafkaSpec) -> None:
        self._admin = admin_client(spec)
        self._not_these = _OF_THE_BROKERS | {spec.registry_topic, spec.layouts_topic}

    def names(self) -> tuple[str, ...]:
        """Their names, sorted, but for the brokers' own and the registry. Raises StorageError."""
        admin = self._admin
        found = ask(admin, lambda: admin.list_topics(timeout=admin.request_seconds).topics, "looking for topics")
        return tuple(sorted(found.keys() - self._not_these))
