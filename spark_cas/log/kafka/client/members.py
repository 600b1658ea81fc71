"""Consumers that each name a group and never join it. The most recently used ones stay open."""

import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import count

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from spark_cas.log import timing
from spark_cas.log.kafka.client.clients import group_member
from spark_cas.log.kafka.client.codes import NOT_FOUND
from spark_cas.log.kafka.client.rights import NOT_PERMITTED
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec

_MOST_OPEN = 6
"""Enough for the ledgers of a few jobs, and for the load lock."""

_Key = frozenset[tuple[str, int, int]]
"""The offsets of a commit."""
_PENDING = object()


class Members:
    """The group consumers of one set of clients."""

    def __init__(self, spec: KafkaSpec) -> None:
        self.spec = spec
        self._open: OrderedDict[str, Consumer] = OrderedDict()
        self._numbers = count(1)
        self._noted: dict[_Key, KafkaError | object | None] = {}
        """The results of the commits that `commit` waits for: `_PENDING`, an error, or None."""

    def of(self, group: str) -> Consumer:
        """Return the consumer of a group. It stays open until this object opens several others."""
        if group not in self._open:
            self._open[group] = group_member(self.spec, group, partial(_note, self._noted))
        self._open.move_to_end(group)
        while len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)[1].close()
        return self._open[group]

    def drop(self, group: str) -> None:
        """Close the consumer of a group. The next use opens another one."""
        self._open.pop(group).close()

    def prove(self, group: str, timeout_seconds: float) -> None:
        """Have the coordinator of a group commit an offset that no reader uses, which a stale coordinator cannot do.

        A stale coordinator (Kafka 4.1) answers reads with old offsets, because a read has no epoch.

        Raises:
            KafkaException: The commit failed, was denied, or timed out.
        """
        # Every writer may read this topic, and no job has ledger entries for it.
        mark = TopicPartition(self.spec.registry_topic, 0, next(self._numbers))
        try:
            self.commit(group, [mark], timeout_seconds)
        except KafkaException as error:
            if error.args[0].code() in NOT_FOUND:
                # The topic is new and the broker does not know it yet: retry.
                raise KafkaException(_timed_out()) from None
            raise

    def commit(self, group: str, offsets: Sequence[TopicPartition], timeout_seconds: float) -> None:
        """Commit offsets of a group without members.

        Raises:
            KafkaException: The commit failed, was denied, or timed out.
        """
        member, key = self.of(group), _key(offsets)
        self._noted[key] = _PENDING
        try:
            member.commit(offsets=[*offsets], asynchronous=True)
            deadline = time.monotonic() + timeout_seconds
            while self._noted[key] is _PENDING:
                message = member.poll(4 * timing.current().poll_pause)
                error = None if message is None else message.error()
                if error is not None and error.code() in NOT_PERMITTED:
                    raise KafkaException(error)
                if time.monotonic() >= deadline:
                    raise KafkaException(_timed_out())
        finally:
            # A result that arrives later is ignored.
            failed = self._noted.pop(key)
        if failed is not None:
            raise KafkaException(failed)

    def forget_events(self) -> None:
        """Read the pending events, so that they do not explain later failures."""
        for member in self._open.values():
            while member.poll(0) is not None:
                pass

    def close(self) -> None:
        """Close all consumers."""
        while self._open:
            self._open.popitem()[1].close()


def _timed_out() -> KafkaError:
    return KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001 - librdkafka names it so


def _key(offsets: Iterable[TopicPartition]) -> _Key:
    return frozenset((each.topic, each.partition, each.offset) for each in offsets)


def _note(
    noted: dict[_Key, KafkaError | object | None], error: KafkaError | None, offsets: list[TopicPartition]
) -> None:
    key = _key(offsets)
    if key in noted:
        noted[key] = error or next((each.error for each in offsets if each.error), None)
