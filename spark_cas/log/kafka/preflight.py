"""What can be known of a topic before the first row: whether it can be written to, and what weakens a promise."""

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, TopicDescription

from spark_cas.core.errors import StorageError
from spark_cas.log.kafka.asking import REQUEST_SECONDS, ask
from spark_cas.log.kafka.clients import TransactionalProducer
from spark_cas.log.kafka.ledger import read_progress
from spark_cas.log.kafka.plain import plain_error
from spark_cas.log.kafka.spec import KafkaSpec
from spark_cas.log.kafka.topic_settings import TopicSettings, topic_settings
from spark_cas.log.protocol import Preflight

_BATCH_OVERHEAD_BYTES = 512
"""Header of a batch and of its one record, more than they ever take but for a record's own headers."""

_NOT_SEEN = (
    "the settings of the topic may not be seen by this principal (the ACL DescribeConfigs on the topic allows it): "
    "record sizes, retention and replication were not checked, and the topic is treated as if it were compacted"
)


def preflight(admin: AdminClient, spec: KafkaSpec) -> Preflight:
    """Look at a topic, its settings and the rights to write it.

    Raises LogNotFoundError; StorageError naming the missing right, or saying why no append would be acknowledged.
    """
    description = describe(admin, spec.topic)
    settings = topic_settings(admin, spec.topic)
    if settings is None:
        notes = [_NOT_SEEN]
    else:
        _require_in_sync(description, settings)
        notes = [*_notes_on_loss(description, settings), *_notes_on_retention(settings)]
    _require_group(admin, spec)
    _require_transactions(spec)
    room = None if settings is None else max(1, settings.max_message_bytes - _BATCH_OVERHEAD_BYTES)
    return Preflight(max_record_bytes=room, notes=tuple(notes))


def describe(admin: AdminClient, topic: str) -> TopicDescription:
    """What the brokers know of a topic. Raises LogNotFoundError, StorageError."""

    def question() -> TopicDescription:
        asked = admin.describe_topics(TopicCollection([topic]), request_timeout=REQUEST_SECONDS)
        description: TopicDescription = asked[topic].result(REQUEST_SECONDS)
        return description

    return ask(question, f"looking for topic {topic}")


def _require_in_sync(description: TopicDescription, settings: TopicSettings) -> None:
    wanted = settings.min_insync_replicas
    for partition in description.partitions:
        if partition.leader.id < 0:
            raise StorageError(
                f"partition {partition.id} of the topic has no leader: no append would be acknowledged. Nothing was "
                f"appended. Start the brokers that hold its replicas, then run the same job again."
            )
        if len(partition.isr) < wanted:
            raise StorageError(
                f"partition {partition.id} of the topic has {len(partition.isr)} replicas in sync and "
                f"min.insync.replicas is {wanted}: no append would be acknowledged. Nothing was appended. Start the "
                f"missing brokers, then run the same job again."
            )


def _notes_on_loss(description: TopicDescription, settings: TopicSettings) -> list[str]:
    notes = []
    if settings.unclean_leader_election:
        notes.append(
            "unclean.leader.election.enable is true: after a failure acknowledged records may be gone. A later "
            "append then says that the log was truncated; set it to false to keep them"
        )
    replicas = min(len(partition.replicas) for partition in description.partitions)
    if settings.min_insync_replicas < min(2, replicas):
        notes.append(
            f"min.insync.replicas is {settings.min_insync_replicas} with {replicas} replicas: a record may be "
            f"acknowledged while only one broker has it. Set it to 2 or more"
        )
    return notes


def _notes_on_retention(settings: TopicSettings) -> list[str]:
    notes = []
    if settings.compacted:
        notes.append(
            "the topic is compacted: rows need a key, older values of a key vanish, and an expected offset must be "
            "the end itself once the claim is older than delete.retention.ms"
        )
    if settings.deleted and settings.retention_ms >= 0:
        days = settings.retention_ms / 86_400_000
        notes.append(
            f"records whose timestamp is older than {days:g} days are deleted (retention.ms), also right after they "
            f"were appended. Leave the column timestamp out, or set retention.ms to -1, if rows are older than that"
        )
    if settings.deleted and settings.retention_bytes >= 0:
        notes.append(
            f"a partition keeps no more than {settings.retention_bytes} bytes (retention.bytes): older records are "
            f"deleted. Set it to -1 if the log is to be kept whole"
        )
    return notes


def _require_group(admin: AdminClient, spec: KafkaSpec) -> None:
    """The ledger is read as the offsets of a group with the prefix."""
    read_progress(admin, spec.group("preflight"), TopicPartition(spec.topic, 0), "", REQUEST_SECONDS)


def _require_transactions(spec: KafkaSpec) -> None:
    """A transactional id with the prefix can be had, with the timeout that is asked for. It writes nothing."""
    producer = TransactionalProducer(spec, f"{spec.prefix}/preflight")
    try:
        producer.init(REQUEST_SECONDS)
    except KafkaException as error:
        raise plain_error(error, "asking for a transactional id") from None
    finally:
        producer.close()
