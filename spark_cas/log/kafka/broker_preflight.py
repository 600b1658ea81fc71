"""Check a topic before the first row: whether it can be written to, and which settings weaken a guarantee.

The newest keys are sampled, because other producers may have filled the topic with another partitioner: librdkafka's
default is CRC32, the Java client's is murmur2. Then new records of a key would be in other partitions than the
existing ones.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition, TopicPartitionInfo
from confluent_kafka.admin import AclOperation, NewTopic, TopicDescription

from spark_cas.core.errors import LogNotFoundError, StorageError
from spark_cas.core.expansion import Layouts, partitions_at
from spark_cas.core.guarantee import AT_LEAST_ONCE, EXACTLY_ONCE, IDEMPOTENT, OFF, REQUIRED
from spark_cas.core.partitioner import PARTITIONERS, Partitioner, Placement, partition_of_key
from spark_cas.log import timing
from spark_cas.log.backend import Preflight
from spark_cas.log.deadline import Wait, within
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.client_errors import (
    PARTITION_EOF,
    TIMED_OUT,
    Meaning,
    NotAvailableError,
    NotPermittedError,
    lacking,
    meaning_of,
    on_topic,
    to_append,
)
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.client.kept_clients import ClientSet
from spark_cas.log.kafka.offsets import end_offsets
from spark_cas.log.kafka.offsets.reading import offset_of
from spark_cas.log.kafka.registry.layouts import TopicLayouts
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.kafka.topic.topic_settings import (
    Requested,
    TopicSettings,
    alive_brokers,
    broker_settings,
    describe,
    leader_of,
    request_topics,
    topic_settings,
)
from spark_cas.log.kafka.topic.topics import create_registry_topic, registry_topics, require_coordinators
from spark_cas.log.kafka.topic.weak_settings import (
    broker_findings,
    loss_findings,
    registry_findings,
    removal_findings,
    with_brokers,
)

_BATCH_OVERHEAD_BYTES = 512
"""An upper bound for the headers of a batch and its only record, except the record's own headers."""

_NEWEST_OFFSETS = 16
"""How many offsets to read in each partition. Transaction markers use some of them."""
_MOST_PARTITIONS = 256
"""How many partitions to sample. If a topic has more, the sampled ones are evenly spaced."""
_POLL_RECORDS = 1_000
_OWN_KEYS = b"spark_cas."
"""The prefix of keys that this package writes to each partition, such as those of the key-value store."""

_NO_ID = "A" * 22
"""Zero in Kafka's notation of ids."""

_NOT_EXACTLY_ONCE = (
    "idempotence is requested, but exactly once is not available here: a retried task, or a job that runs again, may "
    "append its rows again. {}"
)
_NOT_READABLE = (
    "this user may not read the settings of topic {}, which needs the ACL DescribeConfigs on the topic. Record "
    "sizes, retention and replication were not checked, and the topic is handled as a compacted one"
)


def preflight(clients: ClientSet, spec: KafkaSpec, *, begun: bool, idempotence: str) -> Preflight:
    """Check a topic, its settings and the permissions to write it. Nothing of the check is visible to readers.

    The check includes a trial transaction, unless these clients made one within the last minute or the stream has
    already ``begun``. If exactly once is `REQUESTED` and not available, a note gives the reason, and the guarantee is
    idempotent.

    Raises:
        LogNotFoundError: The topic does not exist.
        StorageError: A permission is missing, or no append would be acknowledged.
    """
    admin = clients.admin
    admin.known.add(spec.topic)  # by the caller
    registry = [] if idempotence == OFF else [spec.registry_topic, spec.layouts_topic]
    requested = request_topics(admin, [spec.topic, *registry])
    description, settings = _in_sync(admin, spec.topic, requested, AclOperation.WRITE)
    if settings is None:
        notes = [_NOT_READABLE.format(spec.topic)]
    else:
        findings = (*loss_findings(description, settings), *removal_findings(spec.topic, settings))
        notes = [each.meaning for each in findings]
    guarantee = AT_LEAST_ONCE
    if idempotence != OFF:
        try:
            notes += _require_exactly_once(clients, spec, description, requested, begun=begun)
            guarantee = EXACTLY_ONCE
        except NotAvailableError as refused:
            if idempotence == REQUIRED:
                raise
            notes.append(_NOT_EXACTLY_ONCE.format(refused.note))
            guarantee = IDEMPOTENT
    broker = description.partitions[0].leader.id
    values = clients.cached(f"broker {broker}", lambda: broker_settings(admin, broker))
    notes += [each.meaning for each in broker_findings(broker, values)]
    result = Preflight(None, tuple(notes), guarantee, keys_required=settings is not None and settings.compacted)
    return with_record_limit(result, spec, settings)


def with_record_limit(result: Preflight, spec: KafkaSpec, settings: TopicSettings | None) -> Preflight:
    """Return the preflight with the limit of a record before compression, if there is one.

    The brokers check the size of a batch as it is sent, and again as it is stored. So max.message.bytes of the topic
    limits a record only if the producer does not compress, or the topic stores batches uncompressed. max.request.size
    of the producer always limits it.
    """
    return _limited(result, spec, [] if settings is None else [(settings.max_message_bytes, settings.compression)])


def limits_of_new_topic(admin: Admin, spec: KafkaSpec) -> Preflight:
    """Return the limits of a topic with the brokers' defaults, as far as this principal may read them."""
    brokers = [each for each in (broker_settings(admin, number) for number in alive_brokers(admin)) if each]
    is_compacted = any("compact" in each["log.cleanup.policy"].split(",") for each in brokers)
    result = Preflight(None, (), keys_required=is_compacted)
    return _limited(result, spec, [(int(each["message.max.bytes"]), each["compression.type"]) for each in brokers])


def _limited(result: Preflight, spec: KafkaSpec, topic_limits: list[tuple[int, str]]) -> Preflight:
    """Return the preflight with the limit of a record. A limit of the topic is in bytes, with its codec."""
    limits = []
    for most, codec in topic_limits:
        if spec.compression is not None and codec != "uncompressed":
            continue
        limits.append((max(1, most - _BATCH_OVERHEAD_BYTES), f"max.message.bytes={most} of the topic"))
    if spec.most_request_bytes is not None:
        limits.append((spec.most_request_bytes, f"option kafka.max.request.size={spec.most_request_bytes}"))
    if not limits:
        return replace(result, max_record_bytes=None)
    most, setting = min(limits)
    return replace(result, max_record_bytes=most, max_record_setting=setting)


def _require_exactly_once(
    clients: ClientSet, spec: KafkaSpec, description: TopicDescription, requested: Requested, *, begun: bool
) -> list[str]:
    """Check that a transaction and a plan can be recorded, and return notes. Raises NotAvailableError."""
    _require_right(description, AclOperation.READ)
    _require_id(description)
    if not begun:
        clients.cached("transactions", lambda: _require_transactions(clients, spec))
    topics = registry_topics(spec)
    return [note for topic in topics for note in _notes_on_registry(clients.admin, spec, topic, requested)]


def _in_sync(
    admin: Admin, topic: str, requested: Requested, *needed: AclOperation
) -> tuple[TopicDescription, TopicSettings | None]:
    """Return a topic after it has leaders and enough in-sync replicas for an append. Check the needed permissions.

    Wait only for replicas that may recover, not for more replicas than the topic has.
    """
    wait = Wait(admin.patience_seconds, f"looking for the replicas of topic {topic}")
    while True:
        description = describe(admin, topic, with_rights=True, requested=requested)
        for operation in needed:
            _require_right(description, operation)
        settings = topic_settings(admin, topic, requested)
        wanted = 1 if settings is None else settings.min_insync_replicas
        lacking_ones = [each for each in description.partitions if leader_of(each) < 0 or len(each.isr) < wanted]
        if not lacking_ones:
            return description, settings
        hopeless = any(len(each.replicas) < wanted for each in lacking_ones)
        if hopeless or not wait.again("too few of them are in sync"):
            raise _not_acknowledged(topic, lacking_ones[0], wanted)
        requested.clear()  # the other answers are as old as the wait


def _not_acknowledged(topic: str, partition: TopicPartitionInfo, wanted: int) -> StorageError:
    subject = f"partition {partition.id} of topic {topic} has"
    if leader_of(partition) < 0:
        return StorageError(
            f"{subject} no leader: no append would be acknowledged. Nothing was appended. Start the brokers that "
            f"hold its replicas, then run the same job again."
        )
    return StorageError(
        f"{subject} {len(partition.isr)} of {len(partition.replicas)} replicas in sync, and min.insync.replicas is "
        f"{wanted}: no append would be acknowledged. Nothing was appended. Start the missing brokers, or give the "
        f"topic that many replicas, then run the same job again."
    )


def _require_right(description: TopicDescription, operation: AclOperation) -> None:
    if operation not in description.authorized_operations:
        topic = description.name
        lack = f"looking for topic {topic}: {lacking(on_topic(operation.name.capitalize(), topic))}."
        raise NotPermittedError(f"{lack} Then run the same job again.", lack)


def _require_id(description: TopicDescription) -> None:
    """Raise unless the topic has an id, which a plan records in addition to the name."""
    if str(description.topic_id) == _NO_ID:
        cause = (
            f"topic {description.name} has no id: the brokers are older than Kafka 2.8, or run an older metadata "
            f"version."
        )
        raise NotAvailableError(
            f"{cause} Nothing was appended. Bring them to a newer version, then run the same job again.",
            f"{cause} For exactly once, bring them to a newer version.",
        )


def _require_transactions(clients: ClientSet, spec: KafkaSpec) -> None:
    """Check that the brokers accept a transaction with a ledger entry and the requested timeout, and abort it."""
    require_coordinators(clients.admin)
    group = spec.group("preflight")
    member = clients.members.of(group)

    def question() -> None:
        producer = TransactionalProducer(spec, spec.id_of_preflight)
        try:
            producer.init(spec.request_seconds)
            producer.begin()
            entry = TopicPartition(spec.topic, 0, 0)
            producer.adding([entry], group, member).result()
            producer.abort()
        except KafkaException as error:
            code = error.args[0].code()
            if code in TIMED_OUT and producer.connected:
                raise KafkaException(KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE)) from None
            # Another preflight with the same permissions may have fenced this one.
            if meaning_of(code) is not Meaning.FENCED:
                raise
        finally:
            producer.close()

    clients.admin.ask(question, "trying a transaction", *to_append(spec))


def _notes_on_registry(admin: Admin, spec: KafkaSpec, topic: NewTopic, requested: Requested) -> list[str]:
    """Check that a registry topic can be created, or is usable and keeps its records. Return notes on it."""
    name = topic.topic
    try:
        description, settings = _in_sync(admin, name, requested, AclOperation.WRITE, AclOperation.READ)
    except LogNotFoundError:
        create_registry_topic(admin, topic, only_try=True)
        return []
    if settings is None:
        return []
    for each in registry_findings(name, settings):
        raise StorageError(
            f"{each.meaning}. Nothing was appended. Run the same job again after an administrator has fixed it: "
            f"{with_brokers(each.fix, spec)}"
        )
    return [each.meaning for each in loss_findings(description, settings)]


@dataclass(frozen=True, slots=True)
class SampledKey:
    """The key of an existing record, and the offset of that record."""

    key: bytes
    partition: int
    offset: int

    def is_elsewhere(self, partitioner: Partitioner, partitions: int) -> bool:
        """Whether the key is in another partition than a partitioner assigns."""
        return partition_of_key(self.key, partitions, partitioner) != self.partition


def keys_elsewhere(clients: ClientSet, layouts: TopicLayouts, placement: Placement) -> str:
    """Return a note on sampled keys that are in other partitions than a write assigns; empty if there are none.

    For a record from before an expansion, the partition count of that time applies. If the brokers do not answer,
    return no note, because the write itself reports that.
    """
    seconds = 2 * timing.current().best_effort  # the check uses the records read by then
    try:
        with within(seconds):
            partitions = layouts.await_partitions([], recent=True).partitions
            sample = _sample(clients, layouts.topic, partitions, seconds)
            if not any(each.is_elsewhere(placement.partitioner, partitions) for each in sample):
                return ""
            # Partitions may have been added. Without permission to read the registry, expansions are unknown.
            history = layouts.all(layouts.layout().partitions)
    except (StorageError, LogNotFoundError, KafkaException):
        return ""
    return _note(layouts.topic, sample, history, placement)


def _note(topic: str, sample: list[SampledKey], history: Layouts, placement: Placement) -> str:
    counts = [(each, partitions_at(history, each.partition, each.offset)) for each in sample]
    elsewhere = {name: sum(each.is_elsewhere(name, count) for each, count in counts) for name in PARTITIONERS}
    own = placement.partitioner
    if not elsewhere[own]:
        return ""
    matching = [each for each in PARTITIONERS if not elsewhere[each]]
    if matching and history.partitioner is None:
        fix = f"they match partitioner={matching[0]}: set that option for route and the write"
    else:
        fix = (
            "no partitioner that the log can have matches all of them. Conditions of keys do not hold here: leave "
            "compare=key out, or assign the partitions yourself with route(by='partition')"
        )
    return (
        f"of {len(sample)} sampled keys of topic {topic}, {elsewhere[own]} are in other partitions than "
        f"partitioner={own} assigns, so new records of a key may get into another partition than the existing "
        f"ones; {fix}"
    )


def _sample(clients: ClientSet, topic: str, partitions: int, seconds: float) -> list[SampledKey]:
    """Fetch the newest records of partitions, and return their keys."""
    deadline = time.monotonic() + seconds
    step = -(-partitions // _MOST_PARTITIONS)
    ats = [TopicPartition(topic, each) for each in range(0, partitions, step)]
    bounds = end_offsets.all_stable_bounds(clients.admin, ats)
    starts = [
        TopicPartition(topic, at.partition, max(each.start_offset, each.end_offset - _NEWEST_OFFSETS))
        for at, each in zip(ats, bounds, strict=True)
        if each.end_offset > each.start_offset
    ]
    if not starts:
        return []
    with clients.readers.borrow(topic, scanning=True) as consumer:
        consumer.assign(starts)
        keys = _keys(consumer, len(starts), deadline)
        return [each for each in keys if not each.key.startswith(_OWN_KEYS)]


def _keys(consumer: Consumer, partitions: int, deadline: float) -> Iterator[SampledKey]:
    """Yield the keys that arrive before the deadline, until each partition was read to its end."""
    ended: set[int | None] = set()
    while len(ended) < partitions and (left := deadline - time.monotonic()) > 0:
        # A timeout of `consume` is for all of the records that it may return.
        first = consumer.poll(left)
        for message in [] if first is None else [first, *consumer.consume(_POLL_RECORDS, 0)]:
            error, key, partition = message.error(), message.key(), message.partition()
            if error is not None and error.code() == PARTITION_EOF:
                ended.add(partition)
            elif error is None and key is not None and partition is not None:
                yield SampledKey(key, partition, offset_of(message))
