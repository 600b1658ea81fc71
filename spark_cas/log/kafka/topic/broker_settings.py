"""Read the settings of brokers, if the principal has permission."""

from collections.abc import Iterable
from concurrent.futures import wait
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import ConfigEntry, ConfigResource, ResourceType

from spark_cas.log import timing
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.ask import ask, confirmed
from spark_cas.log.kafka.client.error_text import NOT_PERMITTED, NotAvailableError
from spark_cas.log.kafka.client.kept_clients import ClientSet

_RETENTION = "offsets.retention.minutes"


def broker_settings(admin: Admin, broker: int) -> dict[str, str]:
    """Return the settings of a broker, empty if this principal has no permission. Raises StorageError."""
    resource = ConfigResource(ResourceType.BROKER, str(broker))

    def question() -> dict[str, ConfigEntry]:
        requested = admin.client.describe_configs([resource], request_timeout=admin.request_seconds)
        try:
            result: dict[str, ConfigEntry] = admin.answer(requested[resource])
        except KafkaException as error:
            if error.args[0].code() in NOT_PERMITTED:
                return {}
            raise
        return result

    result = ask(admin, question, "looking at the brokers' settings")
    return {name: str(entry.value) for name, entry in result.items()}


def alive_brokers(admin: Admin) -> list[int]:
    """Return the ids of the brokers that are alive. Raises StorageError."""

    def question() -> list[int]:
        described = admin.answer(admin.client.describe_cluster(request_timeout=admin.request_seconds))
        return sorted(each.id for each in described.nodes)

    return ask(admin, question, "listing the brokers")


def ledger_kept_ms(admin: Admin) -> int | None:
    """Return how long a ledger entry outlives the newest chunk of its job in the partition, in milliseconds.

    None if this principal has no permission to read it. Raises StorageError.
    """
    return _shortest_ms(broker_settings(admin, each).get(_RETENTION) for each in alive_brokers(admin))


def recent_ledger_kept_ms(clients: ClientSet) -> int | None:
    """Return the same in about a second, from the brokers that answer in this time. It may be a minute old.

    None also if no broker answers. No error is raised, because a claim needs the answer only if the ledger may have
    expired.
    """
    return clients.cached("ledger", lambda: _read_once(clients.admin))


def _read_once(admin: Admin) -> int | None:
    seconds = 2 * timing.current().best_effort
    known: list[str | None] = []
    with suppress(KafkaException, TimeoutError):
        nodes = admin.client.describe_cluster(request_timeout=seconds).result(seconds).nodes
        resources = [ConfigResource(ResourceType.BROKER, str(each.id)) for each in nodes]
        requested = [admin.client.describe_configs([each], request_timeout=seconds)[each] for each in resources]
        wait(requested, seconds)
        for each in requested:
            with suppress(KafkaException, TimeoutError):
                known.append(each.result(0)[_RETENTION].value)
    return _shortest_ms(known)


def _shortest_ms(minutes: Iterable[str | None]) -> int | None:
    return min((60_000 * int(each) for each in minutes if each and each.isdigit()), default=None)


_FACTORS = {
    "__transaction_state": "transaction.state.log.replication.factor",
    "__consumer_offsets": "offsets.topic.replication.factor",
}
"""Internal topics, and the broker setting with the number of replicas that each is created with."""

_DOING = "checking the coordinators of transactions and groups"


def require_coordinators(admin: Admin) -> None:
    """Raise NotAvailableError if an internal topic does not exist and has more replicas than there are brokers.

    The brokers create such a topic when a client first needs it. Until enough brokers are registered, that fails
    without an error to the client, which waits. A topic that exists has a coordinator, or gets it back.

    A user without the right to describe the internal topics or the brokers' settings gets no error. The number of
    brokers is confirmed by further requests, because brokers that are starting register one after another. A check
    that found nothing wrong is not repeated by the same client.

    Raises:
        NotAvailableError: The brokers cannot create an internal topic.
        StorageError: The brokers did not answer.
    """

    def doubt(shortage: NotAvailableError | None) -> str:
        return "fewer brokers are registered than an internal topic has replicas" if shortage else ""

    if admin.coordinated:
        return
    shortage = confirmed(admin, lambda: _shortage(admin), doubt, _DOING)
    if shortage is not None:
        raise shortage
    admin.coordinated = True


def _shortage(admin: Admin) -> NotAvailableError | None:
    """Return the error; None if the brokers can create all internal topics, or that is not known."""
    missing = _missing_topics(admin)
    if not missing:
        return None
    alive, registered = _brokers(admin)
    if not alive:
        return None
    settings = [broker_settings(admin, broker) for broker in sorted(alive)]
    for topic in missing:
        name = _FACTORS[topic]
        # The broker that creates the topic uses its own setting.
        factors = [int(each[name]) if name in each else 0 for each in settings]
        if min(factors) > len(registered):
            cause = (
                f"the brokers cannot create topic {topic}, which transactions need: {name} is {min(factors)}, and "
                f"{len(registered)} broker{'s are' if len(registered) > 1 else ' is'} registered."
            )
            fix = f"{name} to at most {len(registered)} in the brokers' settings, or start more brokers"
            return NotAvailableError(
                f"{cause} Nothing was appended. Set {fix}, then run the same job again.",
                f"{cause} For exactly once, set {fix}.",
            )
    return None


def _missing_topics(admin: Admin) -> list[str]:
    """Return the internal topics that do not exist, of those that this user may describe."""

    def question() -> list[str]:
        requested = admin.client.describe_topics(TopicCollection([*_FACTORS]), request_timeout=admin.request_seconds)
        missing = []
        for topic, future in requested.items():
            try:
                admin.answer(future)
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    missing.append(topic)
                elif code not in NOT_PERMITTED:
                    raise
        return missing

    return ask(admin, question, _DOING)


def _brokers(admin: Admin) -> tuple[set[int], set[int]]:
    """Return the brokers that are alive, and those that are registered.

    Metadata list the brokers that are alive only. The replicas of topics name brokers that are away.
    """
    metadata = ask(admin, lambda: admin.client.list_topics(timeout=admin.request_seconds), _DOING)
    alive = set(metadata.brokers)
    partitions = [each for topic in metadata.topics.values() for each in topic.partitions.values()]
    return alive, alive.union(*(each.replicas for each in partitions))
