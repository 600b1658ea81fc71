"""List, create and expand topics, and check that the brokers can create their internal topics."""

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import NewPartitions, NewTopic

from spark_cas.core.errors import LogNotFoundError
from spark_cas.log.deadline import Wait
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.client_errors import (
    NOT_PERMITTED,
    NotAvailableError,
    NotPermittedError,
    lacking,
    on_topic,
)
from spark_cas.log.kafka.client.clients import admin_client
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.kafka.topic.topic_settings import broker_settings, describe, leader_of

_FENCED = "fenced"
"""The word that brokers (3.x, 4.x) use for registered brokers that are not active yet. Their error code also means
that there are too few brokers. Remove this when Kafka has a code of its own for fenced brokers."""
JOB_PARTITIONS = 16
"""A lookup of one job reads one of these partitions. A topic that an administrator created may have any number."""
_FACTORS = {
    "__transaction_state": "transaction.state.log.replication.factor",
    "__consumer_offsets": "offsets.topic.replication.factor",
}
"""Internal topics, and the broker setting with the number of replicas that each is created with."""
_CHECKING_COORDINATORS = "checking the coordinators of transactions and groups"
_OF_THE_BROKERS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class Topics:
    """The topics that this principal can see. It keeps its client, because streams list the topics repeatedly."""

    def __init__(self, spec: KafkaSpec) -> None:
        self._admin = admin_client(spec)
        self._not_these = _OF_THE_BROKERS | {spec.registry_topic, spec.layouts_topic}

    def names(self) -> tuple[str, ...]:
        """Return the sorted names, without the registry topics and internal topics. Raises StorageError."""
        admin = self._admin
        result = admin.ask(
            lambda: admin.client.list_topics(timeout=admin.request_seconds).topics, "looking for topics"
        )
        return tuple(sorted(result.keys() - self._not_these))


def create_topic(admin: Admin, topic: NewTopic, doing: str, *, only_try: bool = False) -> None:
    """Create a topic unless one with this name exists. With ``only_try``, the brokers only validate the request.

    ``doing`` is the beginning of an error text. Raises StorageError.
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

    admin.ask(question, doing, on_topic("Create", topic.topic))


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

    admin.ask(question, f"adding partitions to topic {topic}", on_topic("Alter", topic))


def registry_topics(spec: KafkaSpec) -> list[NewTopic]:
    """Return the topics of plans and completions, and of expansions, as this package creates them."""
    counts, settings = {spec.registry_topic: JOB_PARTITIONS, spec.layouts_topic: 1}, {"cleanup.policy": "compact"}
    return [NewTopic(name, partitions, -1, config=settings) for name, partitions in counts.items()]


def create_registry_topics(admin: Admin, spec: KafkaSpec) -> None:
    """Create the topics of the registry unless they exist. Then permission to create them is not necessary.

    Raises StorageError.
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


def require_coordinators(admin: Admin) -> None:
    """Raise NotAvailableError if an internal topic does not exist and has more replicas than there are brokers.

    The brokers create such a topic when a client first needs it. Until enough brokers are registered, that fails
    without an error to the client, which waits. A topic that exists has a coordinator, or gets it back.

    A user without the right to describe the internal topics or the brokers' settings gets no error. The number of
    brokers is confirmed by further requests, because brokers that are starting register one after another. A check
    that found nothing wrong is not repeated by the same client. Raises StorageError if the brokers do not answer.
    """

    def doubt(shortage: NotAvailableError | None) -> str:
        return "fewer brokers are registered than an internal topic has replicas" if shortage else ""

    if admin.coordinated:
        return
    shortage = admin.confirmed(lambda: _shortage(admin), doubt, _CHECKING_COORDINATORS)
    if shortage is not None:
        raise shortage
    admin.coordinated = True


def _shortage(admin: Admin) -> NotAvailableError | None:
    """Return the error; None if the brokers can create all internal topics, or that is not known."""
    missing = _missing_topics(admin)
    if not missing:
        return None
    # Metadata list the brokers that are alive only. The replicas of topics name brokers that are away.
    metadata = admin.ask(lambda: admin.client.list_topics(timeout=admin.request_seconds), _CHECKING_COORDINATORS)
    alive = set(metadata.brokers)
    if not alive:
        return None
    partitions = [each for topic in metadata.topics.values() for each in topic.partitions.values()]
    registered = alive.union(*(each.replicas for each in partitions))
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

    return admin.ask(question, _CHECKING_COORDINATORS)
