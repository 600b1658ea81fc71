"""Checks that the brokers can create the internal topics on which transactions and consumer groups depend."""

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.ask import ask, confirmed
from spark_cas.log.kafka.client.error_text import NotAvailableError
from spark_cas.log.kafka.client.rights import NOT_PERMITTED
from spark_cas.log.kafka.topic.broker_settings import broker_settings

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
