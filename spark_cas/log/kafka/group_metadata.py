"""Small texts as the metadata of a memberless group's offsets, which a transaction changes together with its rows.

One request reads the newest of each, however often they were changed.
"""

from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition

from spark_cas.core.errors import UndecidedError
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.client.codes import passes, reason_of
from spark_cas.log.kafka.client.error_text import plain_error
from spark_cas.log.kafka.client.members import Members
from spark_cas.log.kafka.client.rights import NOT_PERMITTED, on_groups, on_topic
from spark_cas.log.patience import Wait

MAX_METADATA_BYTES = 4096
"""The most that brokers keep of one offset, unless they are told otherwise."""

_LOOK_SHARE = 0.5
"""Of the time of a request: after so long without an answer it is looked whether there will be one."""
_PAUSE_SECONDS = 0.02


class GroupMetadata:
    """The texts of one group, which its member asks for. ``what`` they are begins its errors.

    Not the admin client, whose librdkafka (2.16) crashes the process when a group's coordinator has just moved.
    """

    def __init__(self, members: Members, group: str, what: str) -> None:
        spec = members.spec
        self._members = members
        self._group = group
        self._what = what
        self._patience_seconds = spec.patience_seconds
        self._look_seconds = _LOOK_SHARE * spec.request_seconds
        self._rights = (on_groups("Read", spec.prefix), on_topic("Describe", spec.topic))

    def read(
        self, ats: Sequence[TopicPartition], timeout_seconds: float, *, proven: bool = False
    ) -> tuple[str | None, ...]:
        """The text at each partition once no transaction that may change one is open; None where there is none.

        With ``proven``, as a coordinator tells that has not been deposed since this was asked. Raises UndecidedError
        when such a transaction is still open after the timeout, StorageError.
        """
        doing = f"reading {self._what}"
        wait = Wait(timeout_seconds, doing, _PAUSE_SECONDS, _PAUSE_SECONDS)
        while True:
            try:
                if proven:
                    self._members.prove(self._group, min(self._look_seconds, max(0.01, wait.left)))
                found = self._committed(ats, min(self._look_seconds, max(0.01, wait.left)))
            except KafkaException as error:
                if not passes(error.args[0].code(), met=True):
                    raise plain_error(error, doing, *self._rights) from None
                self._require_right(doing)
                if not wait.again("a transaction that may change it is open, or its broker does not answer"):
                    raise UndecidedError(
                        f"{self._what} of {_named(ats)} is undecided: a transaction that may change it is open, or "
                        f"the broker that coordinates it does not answer. Wait until it does, then run the same job "
                        f"again."
                    ) from None
            else:
                return tuple(each.metadata if each.offset >= 0 and each.metadata else None for each in found)

    def adding(self, producer: TransactionalProducer, entries: list[TopicPartition]) -> Callable[[], None]:
        """Begin to put offsets with their texts into an open transaction; call the result to wait for it.

        That raises KafkaException.
        """
        adding = producer.adding(entries, self._group, self._consumer)

        def added() -> None:
            try:
                adding.result()
            except KafkaException as error:
                # A record that is on its way may have broken the transaction.
                raise KafkaException(producer.what_broke(error.args[0])) from None

        return added

    def erase(self, ats: Sequence[TopicPartition]) -> None:
        """Put offsets that say nothing in the place of those with texts; brokers drop them with time.

        Raises StorageError.
        """
        doing = f"erasing {self._what}"
        wait = Wait(self._patience_seconds, doing)
        while True:
            try:
                self._erase(ats)
            except KafkaException as error:
                code = error.args[0].code()
                if not passes(code, met=True) or not wait.again(reason_of(code)):
                    raise plain_error(error, doing, *self._rights) from None
            else:
                return

    @property
    def _consumer(self) -> Consumer:
        return self._members.of(self._group)

    def _require_right(self, doing: str) -> None:
        """The client waits for a coordinator that it may not ask, and says so to whoever polls it."""
        message = self._consumer.poll(0)
        error = None if message is None else message.error()
        if error is not None and error.code() in NOT_PERMITTED:
            raise plain_error(KafkaException(error), doing, *self._rights)

    def _committed(self, ats: Sequence[TopicPartition], timeout_seconds: float) -> list[TopicPartition]:
        found: list[TopicPartition] = self._consumer.committed(
            [TopicPartition(at.topic, at.partition) for at in ats], timeout_seconds
        )
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
        return found

    def _erase(self, ats: Sequence[TopicPartition]) -> None:
        nothing = [TopicPartition(at.topic, at.partition, 0) for at in ats]
        for each in self._consumer.commit(offsets=nothing, asynchronous=False) or ():
            # The client raises only where all of them failed.
            if each.error is not None:
                raise KafkaException(each.error)


def _named(ats: Sequence[TopicPartition]) -> str:
    return f"partition {ats[0].partition}" if len(ats) == 1 else f"some of {len(ats)} partitions"
