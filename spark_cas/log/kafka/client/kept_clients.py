"""The clients of a log other than producers: the admin client, consumers that read, and consumers that name a group.

They are pooled, because to open one takes longer than to read some records.
"""

import math
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Self, TypeVar, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from spark_cas.log import timing
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.client_errors import NOT_FOUND, NOT_PERMITTED
from spark_cas.log.kafka.client.clients import admin_client, group_member, reader
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec

_MOST_IDLE_READERS = 4
"""The most idle consumers that the next log takes over, besides those of the registry."""
_MOST_MEMBERS = 6
"""Enough for the ledgers of a few jobs, and for the load lock."""
_MOST_IDLE_SETS = 2

Value = TypeVar("Value")
_Offsets = frozenset[tuple[str, int, int]]
"""The topics, partitions and offsets of a commit."""
_PENDING = object()


class Readers:
    """The consumers that read records, of one set of clients. Each read has exclusive use of one."""

    def __init__(self, spec: KafkaSpec) -> None:
        self.spec = spec
        self._ids: dict[str, str] = {}
        """Ids of topics, as the current log knows them."""
        self._idle: dict[tuple[str, str, bool], Consumer] = {}
        """Idle consumers by topic, topic id and whether they scan, the most recently used last.

        Each one is for one topic: a client requests the leaders of a new topic only a second after its assignment.
        """
        self._closed = False

    def identify(self, topic: str, log_id: str) -> None:
        """Set the id of a topic: from now on, its reads use only consumers opened for that id.

        For a topic that was recreated meanwhile, the client (librdkafka 2.16, its issue 4898) trusts an old leader.
        """
        self._ids[topic] = log_id

    @contextmanager
    def borrow(
        self, topic: str, *, scanning: bool, statistics: Callable[[str], None] | None = None
    ) -> Iterator[Consumer]:
        """Borrow a consumer without an assignment. If its read fails or ends early, the consumer is closed.

        A consumer with ``statistics`` is new, and closed afterwards: statistics pile up in a client that is not
        polled.
        """
        key = topic, self._ids.get(topic, ""), scanning
        pooled = None if statistics is not None else self._idle.pop(key, None)
        consumer = pooled or reader(self.spec, scanning=scanning, statistics=statistics)
        kept = None
        try:
            yield consumer
            consumer.unassign()
            # Release prefetched records, up to 64 MiB.
            consumer.poll(0)
            if not self._closed and statistics is None:
                kept = self._idle.setdefault(key, consumer)
        finally:
            if kept is not consumer:
                consumer.close()

    def release(self, *topics: str) -> None:
        """Keep idle consumers for the next log: those of these topics, and the last few of identified topics."""
        self._ids.clear()
        others = [each for each in self._idle if each[0] not in topics]
        identified = [each for each in others if each[1]]
        for key in {*others} - {*identified[-_MOST_IDLE_READERS:]}:
            self._idle.pop(key).close()

    def close(self) -> None:
        """Close the idle consumers, and each borrowed one when its read ends."""
        self._closed = True
        while self._idle:
            self._idle.popitem()[1].close()


class Members:
    """The consumers of one set of clients that each name a group and never join it."""

    def __init__(self, spec: KafkaSpec) -> None:
        self.spec = spec
        self._open: OrderedDict[str, Consumer] = OrderedDict()
        self._numbers = count(1)
        self._noted: dict[_Offsets, KafkaError | object | None] = {}
        """The results of the commits that `commit` waits for: `_PENDING`, an error, or None."""

    def of(self, group: str) -> Consumer:
        """Return the consumer of a group. It stays open until this object opens several others."""
        if group not in self._open:
            self._open[group] = group_member(self.spec, group, partial(_note, self._noted))
        self._open.move_to_end(group)
        while len(self._open) > _MOST_MEMBERS:
            self._open.popitem(last=False)[1].close()
        return self._open[group]

    def drop(self, group: str) -> None:
        """Close the consumer of a group. The next use opens another one."""
        self._open.pop(group).close()

    def prove(self, group: str, timeout_seconds: float) -> None:
        """Have the coordinator of a group commit an offset that no reader uses, which a stale coordinator cannot do.

        A stale coordinator (Kafka 4.1) answers reads with old offsets, because a read has no epoch. Raises as
        `commit`.
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
        """Commit offsets of a group without members. Raises KafkaException if it fails, is denied or times out."""
        member, key = self.of(group), _offsets(offsets)
        self._noted[key] = _PENDING
        try:
            member.commit(offsets=[*offsets], asynchronous=True)
            deadline = time.monotonic() + timeout_seconds
            while self._noted[key] is _PENDING:
                message = member.poll(4 * timing.current().poll_pause)
                error = None if message is None else message.error()
                if error is not None and error.code() in NOT_PERMITTED:
                    self.drop(group)  # a client reports it once
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
        while self._open:
            self._open.popitem()[1].close()


def _timed_out() -> KafkaError:
    return KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001 - librdkafka names it so


def _offsets(offsets: Iterable[TopicPartition]) -> _Offsets:
    return frozenset((each.topic, each.partition, each.offset) for each in offsets)


def _note(
    noted: dict[_Offsets, KafkaError | object | None], error: KafkaError | None, offsets: list[TopicPartition]
) -> None:
    key = _offsets(offsets)
    if key in noted:
        noted[key] = error or next((each.error for each in offsets if each.error), None)


class ClientSet:
    """The admin client, the readers and the group members of one spec. Producers are not included.

    Only one log uses a set at a time. The set also caches recent results of requests (`cached`).
    """

    def __init__(self, spec: KafkaSpec) -> None:
        self.admin: Admin = admin_client(spec)
        self.readers = Readers(spec)
        self.members = Members(spec)
        self._known: dict[str, tuple[float, object]] = {}
        self._made = time.monotonic()

    @classmethod
    def borrow(cls, spec: KafkaSpec) -> Self:
        """Return the pooled set for the brokers and settings of a spec, or a new set if the pool has none."""
        for key in _own_keys():
            if time.monotonic() - _idle[key][0] > timing.current().cached_age:
                _idle.pop(key)[1].close()
        _, result = _idle.pop(_key(spec), (0.0, None))
        if not isinstance(result, cls):
            return cls(spec)
        result.admin.serve(spec)
        result.members.forget_events()
        result.readers.spec = result.members.spec = spec
        return result

    def release(self) -> None:
        """Return the set to the pool, still connected, for the next log of these brokers in this process."""
        now, spec = time.monotonic(), self.readers.spec
        if now - self._made > timing.current().client_age:
            self.close()
            return
        self.readers.release(spec.registry_topic, spec.layouts_topic)
        key = _key(spec)
        while key in _idle or len(_own_keys()) >= _MOST_IDLE_SETS:
            _idle.pop(key if key in _idle else _own_keys()[0])[1].close()
        _idle[key] = now, self

    def cached(self, subject: str, read: Callable[[], Value], *, fresh: bool = False) -> Value:
        """Return the cached result of a request if it is at most a minute old, unless a ``fresh`` one is needed.

        Otherwise call ``read`` and cache its result.

        Use it only for values that the append itself verifies, that are refreshed on every use, or that change
        rarely.
        """
        if fresh:
            self._known.pop(subject, None)
        since, result = self._known.get(subject, (-math.inf, None))
        if time.monotonic() - since > timing.current().cached_age:
            result = read()
            self._known[subject] = time.monotonic(), result
        return cast(Value, result)

    def close(self) -> None:
        self.members.close()
        self.readers.close()


_idle: dict[tuple[int, KafkaSpec], tuple[float, ClientSet]] = {}
"""The pooled sets, oldest first, with the time they were returned. The process id is in the key because of forks."""


def _own_keys() -> list[tuple[int, KafkaSpec]]:
    return [key for key in _idle if key[0] == os.getpid()]


def _key(spec: KafkaSpec) -> tuple[int, KafkaSpec]:
    return os.getpid(), replace(spec, topic="", reached=False)
