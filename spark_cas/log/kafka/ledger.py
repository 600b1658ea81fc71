"""The ledger: progress as the metadata of a memberless group's offsets, committed in the rows' transaction."""

import json
import time

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from spark_cas.core.errors import FormatError, StorageError
from spark_cas.core.plan import Progress, progress_from_json, to_json
from spark_cas.log.kafka.asking import REQUEST_SECONDS, ask
from spark_cas.log.kafka.clients import TransactionalProducer

_MAX_METADATA_BYTES = 4096
_VERSION = 1
_PAUSE_SECONDS = 0.02


def entry(topic: str, log_id: str, progress: Progress) -> TopicPartition:
    """A job's progress as the offset commit that goes into the transaction of the rows."""
    metadata = json.dumps(
        {"v": _VERSION, "log_id": log_id, "progress": json.loads(to_json(progress))}, separators=(",", ":")
    )
    if len(metadata) > _MAX_METADATA_BYTES:
        msg = "progress does not fit into the metadata of an offset"
        raise AssertionError(msg)
    return TopicPartition(topic, progress.partition, progress.end_offset, metadata)


def add(producer: TransactionalProducer, member: Consumer, entry: TopicPartition) -> None:
    """Put a job's progress into the open transaction of its rows. Raises KafkaException."""
    producer.client.send_offsets_to_transaction([entry], member.consumer_group_metadata(), REQUEST_SECONDS)


class UndecidedError(StorageError):
    """A transaction that may change the ledger entry is open."""

    def __init__(self, partition: int) -> None:
        super().__init__(
            f"the ledger entry of partition {partition} is undecided: a transaction of the same job is open. Wait "
            f"until it ends, then run the same job again."
        )


def read_progress(
    admin: AdminClient, group: str, at: TopicPartition, log_id: str, timeout_seconds: float
) -> Progress | None:
    """A job's ledger entry once no transaction that may change it is open; None when there is none.

    An entry for another topic of the same name is none. Raises UndecidedError when a transaction of the job is still
    open after the timeout, StorageError, FormatError.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        found = _committed_offset(admin, group, at)
        if found is not None:
            return _decode(found.metadata, log_id) if found.offset >= 0 and found.metadata else None
        if time.monotonic() >= deadline:
            raise UndecidedError(at.partition)
        time.sleep(_PAUSE_SECONDS)


def _committed_offset(admin: AdminClient, group: str, at: TopicPartition) -> TopicPartition | None:
    """The committed offset of a group, None while a transaction that may change it is undecided."""

    def question() -> TopicPartition | None:
        asked = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, [TopicPartition(at.topic, at.partition)])],
            require_stable=True,
            request_timeout=REQUEST_SECONDS,
        )
        found: TopicPartition = asked[group].result(REQUEST_SECONDS).topic_partitions[0]
        if found.error is None:
            return found
        if found.error.code() == KafkaError.UNSTABLE_OFFSET_COMMIT:
            return None
        raise KafkaException(found.error)

    return ask(question, "reading the ledger")


def _decode(metadata: str, log_id: str) -> Progress | None:
    try:
        fields = json.loads(metadata)
        if fields["v"] != _VERSION:
            raise FormatError(
                "the ledger was written by a newer version of spark_cas. Use that version, or a newer one."
            )
        if fields["log_id"] != log_id:
            return None
        return progress_from_json(json.dumps(fields["progress"]))
    except (KeyError, TypeError, ValueError):
        raise FormatError(
            "the ledger of the job holds something that spark_cas did not write: another program commits offsets "
            "to its group. Nothing was appended. Use another job name."
        ) from None
