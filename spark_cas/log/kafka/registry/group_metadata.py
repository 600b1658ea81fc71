"""Store short texts as metadata of a group's offsets, which a transaction changes together with its records.

The group has no members. One request reads the newest text of each offset, however often it has changed.
"""

from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition

from spark_cas.core.errors import UndecidedError
from spark_cas.log import timing
from spark_cas.log.deadline import Wait
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.client.codes import passes, reason_of
from spark_cas.log.kafka.client.error_text import plain_error
from spark_cas.log.kafka.client.members import Members
from spark_cas.log.kafka.client.rights import NOT_PERMITTED, on_groups, on_topic

MAX_METADATA_BYTES = 4096
"""The default limit of brokers for the metadata of one offset."""

_READ_SHARE = 0.5
"""The share of the request timeout after which a missing answer is checked for a permission error."""


class GroupMetadata:
    """The texts of one group, read by its consumer. ``subject`` names them at the beginning of errors.

    The admin client is not used: librdkafka (2.16) crashes the process if the coordinator of a group has just moved.
    """

    def __init__(self, members: Members, group: str, subject: str) -> None:
        spec = members.spec
        self._members = members
        self._group = group
        self._description = subject
        self._patience_seconds = spec.patience_seconds
        self._read_seconds = _READ_SHARE * spec.request_seconds
        self._rights = (on_groups("Read", spec.prefix), on_topic("Describe", spec.topic))

    def read(
        self, ats: Sequence[TopicPartition], timeout_seconds: float, *, proven: bool = False
    ) -> tuple[str | None, ...]:
        """Return the text of each partition after all transactions that may change one have ended.

        None if it has no text.

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

    def adding(self, producer: TransactionalProducer, entries: list[TopicPartition]) -> Callable[[], None]:
        """Start adding offsets with their texts to an open transaction, and return a function that waits for it.

        That function raises KafkaException.
        """
        adding = producer.adding(entries, self._group, self._consumer)

        def added() -> None:
            try:
                adding.result()
            except KafkaException as error:
                # A record in flight may have broken the transaction.
                raise KafkaException(producer.root_cause(error.args[0])) from None

        return added

    def erase(self, ats: Sequence[TopicPartition]) -> None:
        """Replace offsets that have a text by offsets without one. The brokers delete those after a while.

        Raises:
            StorageError.
        """
        doing = f"erasing {self._description}"
        wait = Wait(self._patience_seconds, doing)
        while True:
            try:
                self._erase(ats)
            except KafkaException as error:
                self._require_right(doing)
                code = error.args[0].code()
                if not passes(code, reached=True) or not wait.again(reason_of(code)):
                    rights = (on_groups("Read", self._members.spec.prefix), on_topic("Read", ats[0].topic))
                    raise plain_error(error, doing, *rights) from None
            else:
                return

    @property
    def _consumer(self) -> Consumer:
        return self._members.of(self._group)

    def _require_right(self, doing: str) -> None:
        """Raise if the principal lacks a permission.

        The client reports that only to `poll`, and otherwise keeps waiting.
        """
        message = self._consumer.poll(0)
        error = None if message is None else message.error()
        if error is not None and error.code() in NOT_PERMITTED:
            self._members.drop(self._group)  # a client reports it once
            raise plain_error(KafkaException(error), doing, *self._rights)

    def _committed(self, ats: Sequence[TopicPartition], timeout_seconds: float) -> list[TopicPartition]:
        result: list[TopicPartition] = self._consumer.committed(
            [TopicPartition(at.topic, at.partition) for at in ats], timeout_seconds
        )
        for each in result:
            if each.error is not None:
                raise KafkaException(each.error)
        return result

    def _erase(self, ats: Sequence[TopicPartition]) -> None:
        nothing = [TopicPartition(at.topic, at.partition, 0) for at in ats]
        for each in self._consumer.commit(offsets=nothing, asynchronous=False) or ():
            # The client raises only if all of them failed.
            if each.error is not None:
                raise KafkaException(each.error)


def _named(ats: Sequence[TopicPartition]) -> str:
    return f"partition {ats[0].partition}" if len(ats) == 1 else f"some of {len(ats)} partitions"
