"""The ledger of a job: its progress as metadata of a group's offsets, committed in the transaction of the rows."""

import json
from collections.abc import Callable, Iterable, Sequence

from confluent_kafka import TopicPartition

from spark_cas.core.errors import FormatError
from spark_cas.core.plan import Progress
from spark_cas.core.recorded_fields import INVALID_FIELDS, from_fields, to_json
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.client.members import Members
from spark_cas.log.kafka.registry.group_metadata import MAX_METADATA_BYTES, GroupMetadata

_VERSION = 1


class Ledger:
    """The ledger of one job."""

    def __init__(self, members: Members, job: str) -> None:
        self._entries = GroupMetadata(members, members.spec.group(job), "the ledger entry")

    def read(
        self, at: TopicPartition, log_id: str, timeout_seconds: float, *, proven: bool = False
    ) -> Progress | None:
        """Return the job's entry after all transactions that may change it have ended. None if there is none.

        An entry for another topic of the same name is ignored. ``proven`` is as for `GroupMetadata.read`.

        Raises:
            UndecidedError: Such a transaction is still open after the timeout.
            StorageError, FormatError: The entry cannot be read.
        """
        (entry,) = self._entries.read([at], timeout_seconds, proven=proven)
        return _decode(entry, at, log_id)

    def read_all(
        self, ats: Sequence[TopicPartition], log_id: str, timeout_seconds: float, *, proven: bool = False
    ) -> tuple[Progress | None, ...]:
        """Return the entries in several partitions, with one request."""
        entries = self._entries.read(ats, timeout_seconds, proven=proven)
        return tuple(_decode(entry, at, log_id) for entry, at in zip(entries, ats, strict=True))

    def adding(
        self, producer: TransactionalProducer, topic: str, log_id: str, progress: Iterable[Progress]
    ) -> Callable[[], None]:
        """Start adding entries to the open transaction of their rows, and return a function that waits for it.

        That function raises KafkaException.
        """
        return self._entries.adding(producer, [_entry(topic, log_id, each) for each in progress])

    def erase(self, ats: Sequence[TopicPartition]) -> None:
        """Remove the job's entries. The group stays, because another topic may have a job of this name.

        Raises:
            StorageError.
        """
        self._entries.erase(ats)


def _entry(topic: str, log_id: str, progress: Progress) -> TopicPartition:
    metadata = json.dumps(
        {"v": _VERSION, "log_id": log_id, "progress": json.loads(to_json(progress))}, separators=(",", ":")
    )
    if len(metadata) > MAX_METADATA_BYTES:
        msg = "progress does not fit into the metadata of an offset"
        raise AssertionError(msg)
    return TopicPartition(topic, progress.partition, progress.end_offset, metadata)


def _decode(metadata: str | None, at: TopicPartition, log_id: str) -> Progress | None:
    if metadata is None:
        return None
    try:
        fields = json.loads(metadata)
        if fields["v"] != _VERSION:
            raise FormatError(
                "the ledger was written by a newer version of spark_cas. Use that version, or a newer one."
            )
        if fields["log_id"] != log_id:
            return None
        return from_fields(Progress, fields["progress"])
    except INVALID_FIELDS:
        raise FormatError(
            f"the ledger of the job has an entry for partition {at.partition} of topic {at.topic} that spark_cas did "
            f"not write, because another program commits offsets to its group. Nothing was appended now, and the "
            f"number of rows of the job in the log is unknown. Read the log, and write only the missing rows, under "
            f"another job name."
        ) from None
