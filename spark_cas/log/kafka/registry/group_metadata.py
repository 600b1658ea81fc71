"""The ledger of a job and the load lock of a topic: short texts as metadata of a group's offsets.

A transaction changes an offset of a group together with its records. The group has no members. One request reads the
newest text of each offset, however often it has changed.
"""

import base64
import json
import zlib
from collections.abc import Callable, Iterable, Sequence

from confluent_kafka import KafkaException, TopicPartition

from spark_cas.core.errors import FormatError, StorageError, UndecidedError
from spark_cas.core.load_locks import LoadLocks, load_locks_from_json
from spark_cas.core.plan import Progress
from spark_cas.core.recorded_fields import INVALID_FIELDS, from_fields, to_json
from spark_cas.log import timing
from spark_cas.log.deadline import Wait, within
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.client_errors import (
    NOT_PERMITTED,
    STUMBLED,
    Meaning,
    meaning_of,
    on_groups,
    on_topic,
    passes,
    plain_error,
    reason_of,
    to_claim,
)
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.client.kept_clients import Members
from spark_cas.log.kafka.registry.compacted_map import inflate

MAX_METADATA_BYTES = 4096
"""The default limit of brokers for the metadata of one offset."""

_READ_SHARE = 0.5
"""The share of the request timeout after which a missing answer is checked for a permission error."""
_LEDGER_VERSION = 1
_MOST_LOCKS_BYTES = 1024 * 1024
"""The largest value of the lock before compression. Even with the longest names it has a few kilobytes."""
_CHANGING_LOCKS = "changing the locks of the log"


class GroupMetadata:
    """The texts of one group, read by its consumer. ``subject`` names them at the beginning of errors.

    No admin client requests a group: librdkafka (2.16) crashes the process if its coordinator has just moved.
    """

    def __init__(self, members: Members, group: str, subject: str) -> None:
        self._spec = spec = members.spec
        self._members = members
        self._group = group
        self._description = subject
        self._read_seconds = _READ_SHARE * spec.request_seconds
        self._rights = (on_groups("Read", spec.prefix), on_topic("Describe", spec.topic))

    def texts(
        self, ats: Sequence[TopicPartition], timeout_seconds: float, *, proven: bool = False
    ) -> tuple[str | None, ...]:
        """Return the text of each partition or None, after all transactions that may change one have ended.

        With ``proven``, the coordinator proves first that it is current (`Members.prove`).

        Raises:
            UndecidedError: Such a transaction is still open after the timeout.
            StorageError: The offsets cannot be read.
        """
        doing = f"reading {self._description}"
        pause = timing.current().first_pause
        wait = Wait(timeout_seconds, doing, pause, pause)
        while True:
            try:
                if proven:
                    self._members.prove(self._group, min(self._read_seconds, max(0.01, wait.left)))
                result = self._committed(ats, min(self._read_seconds, max(0.01, wait.left)))
            except KafkaException as error:
                if not passes(error.args[0].code(), reached=True):
                    raise plain_error(error, doing, *self._rights) from None
                self._require_right(doing)
                if not wait.again("a transaction that may change it is open, or its broker does not answer"):
                    raise UndecidedError(
                        f"{self._description} of {_named(ats)} is undecided: a transaction that may change it is "
                        f"open, or the broker that coordinates it does not answer. Wait until it does, then run the "
                        f"same job again."
                    ) from None
            else:
                return tuple(each.metadata if each.offset >= 0 and each.metadata else None for each in result)

    def adding_texts(self, producer: TransactionalProducer, entries: list[TopicPartition]) -> Callable[[], None]:
        """Start adding offsets with their texts to an open transaction, and return a function that waits for it.

        That function raises KafkaException.
        """
        adding = producer.adding(entries, self._group, self._members.of(self._group))

        def added() -> None:
            try:
                adding.result()
            except KafkaException as error:
                # A record in flight may have broken the transaction.
                raise KafkaException(producer.root_cause(error.args[0])) from None

        return added

    def _require_right(self, doing: str) -> None:
        """Raise if the principal lacks a permission. The client reports that only to `poll`, and keeps waiting."""
        message = self._members.of(self._group).poll(0)
        error = None if message is None else message.error()
        if error is not None and error.code() in NOT_PERMITTED:
            self._members.drop(self._group)  # a client reports it once
            raise plain_error(KafkaException(error), doing, *self._rights)

    def _committed(self, ats: Sequence[TopicPartition], timeout_seconds: float) -> list[TopicPartition]:
        result: list[TopicPartition] = self._members.of(self._group).committed(
            [TopicPartition(at.topic, at.partition) for at in ats], timeout_seconds
        )
        for each in result:
            if each.error is not None:
                raise KafkaException(each.error)
        return result


def _named(ats: Sequence[TopicPartition]) -> str:
    return f"partition {ats[0].partition}" if len(ats) == 1 else f"some of {len(ats)} partitions"


class Ledger(GroupMetadata):
    """The ledger of one job: its progress in each partition, committed in the transaction of the rows."""

    def __init__(self, members: Members, job: str) -> None:
        super().__init__(members, members.spec.group(job), "the ledger entry")

    def read_all(
        self, ats: Sequence[TopicPartition], log_id: str, timeout_seconds: float, *, proven: bool = False
    ) -> tuple[Progress | None, ...]:
        """Return the job's entries in some partitions after all transactions that may change one have ended.

        None for a partition without an entry. An entry for another topic of the same name is ignored. ``proven`` is
        as for `texts`.

        Raises:
            UndecidedError: Such a transaction is still open after the timeout.
            StorageError, FormatError: An entry cannot be read.
        """
        texts = self.texts(ats, timeout_seconds, proven=proven)
        return tuple(_progress(text, at, log_id) for text, at in zip(texts, ats, strict=True))

    def adding(
        self, producer: TransactionalProducer, topic: str, log_id: str, progress: Iterable[Progress]
    ) -> Callable[[], None]:
        """Start adding entries to the open transaction of their rows, as `adding_texts`."""
        return self.adding_texts(producer, [_entry(topic, log_id, each) for each in progress])

    def erase(self, admin: Admin, topic: str, partitions: int) -> None:
        """Replace the job's entries by offsets without one, which the brokers delete after a while.

        The group stays, because another topic may have a job of this name. Raises StorageError.
        """
        nothing = [TopicPartition(topic, each, 0) for each in range(partitions)]
        rights = on_groups("Read", self._spec.prefix), on_topic("Read", topic)

        def question() -> None:
            self._members.commit(self._group, nothing, self._spec.request_seconds)

        admin.ask(question, f"erasing {self._description}", *rights)


def _entry(topic: str, log_id: str, progress: Progress) -> TopicPartition:
    metadata = json.dumps(
        {"v": _LEDGER_VERSION, "log_id": log_id, "progress": json.loads(to_json(progress))}, separators=(",", ":")
    )
    if len(metadata) > MAX_METADATA_BYTES:
        raise AssertionError("progress does not fit into the metadata of an offset")
    return TopicPartition(topic, progress.partition, progress.end_offset, metadata)


def _progress(metadata: str | None, at: TopicPartition, log_id: str) -> Progress | None:
    if metadata is None:
        return None
    try:
        fields = json.loads(metadata)
        if fields["v"] != _LEDGER_VERSION:
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


class KafkaLockTable(GroupMetadata):
    """The `spark_cas.log.protocol.LockTable` of a topic, stored in an offset of a group.

    All writers of the lock share a transactional id. The newest one has fenced the others. It reads the current
    state, and commits only if that is the state it expects. So each change follows the previous one.
    """

    def __init__(self, members: Members) -> None:
        super().__init__(members, members.spec.load_locks_group, "the locks")
        self._spec = members.spec.with_short_transaction()

    def load_locks(self) -> LoadLocks:
        return self._read(self._spec.open_transaction_seconds)

    def put_load_locks(self, locks: LoadLocks) -> bool:
        """Record locks, as the protocol requires. Retry transient errors, each time with a new producer."""
        wait = Wait(self._spec.patience_seconds, _CHANGING_LOCKS)
        while True:
            try:
                with within(wait.left):
                    return self._try(locks)
            except KafkaException as error:
                code = error.args[0].code()
                if meaning_of(code) is Meaning.FENCED:
                    return False
                if not (code == STUMBLED or passes(code, reached=True)) or not wait.again(reason_of(code)):
                    raise plain_error(error, _CHANGING_LOCKS, *to_claim(self._spec)) from None
            except UndecidedError as error:
                if not wait.again(error.message):
                    raise

    def _try(self, locks: LoadLocks) -> bool:
        producer = TransactionalProducer(self._spec, self._spec.id_of_load_locks)
        try:
            producer.init(self._spec.open_transaction_seconds)
            now = self._read(self._spec.request_seconds)
            if now.number != locks.number - 1:
                return now == locks  # by an earlier attempt with an unknown result
            producer.begin()
            self.adding_texts(producer, [TopicPartition(self._spec.topic, 0, 0, _encode(locks))])()
            producer.commit()
        finally:
            producer.close()
        return True

    def _read(self, timeout_seconds: float) -> LoadLocks:
        # Each topic has a partition 0.
        (text,) = self.texts([TopicPartition(self._spec.topic, 0)], timeout_seconds)
        return LoadLocks() if text is None else _decode(text)


def _encode(locks: LoadLocks) -> str:
    text = base64.b64encode(zlib.compress(to_json(locks).encode())).decode()
    if len(text) > MAX_METADATA_BYTES:
        raise StorageError(
            f"{_CHANGING_LOCKS}: {len(locks.held)} loads with long names write to the log at once, and brokers keep "
            f"no more than {MAX_METADATA_BYTES} bytes of them. Run the same job again once one of them is complete."
        )
    return text


def _decode(text: str) -> LoadLocks:
    try:
        return load_locks_from_json(inflate(base64.b64decode(text), _MOST_LOCKS_BYTES))
    except (ValueError, zlib.error):
        raise FormatError(
            "the locks of the log are not in the format of this spark_cas. Either a newer version wrote them, or "
            "another program commits offsets to the group."
        ) from None
