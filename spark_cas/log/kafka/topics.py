"""Which topics the brokers have."""

from spark_cas.log.kafka.asking import REQUEST_SECONDS, ask
from spark_cas.log.kafka.clients import admin_client
from spark_cas.log.kafka.spec import KafkaSpec

_OF_THE_BROKERS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def topic_names(spec: KafkaSpec) -> tuple[str, ...]:
    """The names of all topics that this principal sees, sorted, but for the brokers' own and the registry.

    Raises StorageError.
    """
    admin = admin_client(spec)
    found = ask(lambda: admin.list_topics(timeout=REQUEST_SECONDS).topics, "looking for topics")
    return tuple(sorted(found.keys() - _OF_THE_BROKERS - {spec.registry_topic}))
