"""The fence of a transactional id (KIP-98): only its newest producer can write; the brokers fence earlier ones.

A process has few producers at once. The pool closes the least recently used ones.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from weakref import WeakValueDictionary

from confluent_kafka import KafkaException, TopicPartition

from spark_cas.core.errors import LogNotFoundError
from spark_cas.core.offsets import Bounds
from spark_cas.log import timing
from spark_cas.log.deadline import Wait
from spark_cas.log.kafka.client.client_errors import (
    PURGED,
    Meaning,
    meaning_of,
    passes,
    plain_error,
    reason_of,
    to_claim,
)
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.client.kept_clients import ClientSet
from spark_cas.log.kafka.topic.topic_settings import recent_settings
from spark_cas.log.kafka.topic.topics import require_coordinators

_NEVER = (math.inf, math.inf)
_MOST_INSTANCES = 8
"""The limit, because an instance has threads and connections of its own, even while it is idle."""


class Fence:
    """A writer's ownership of a transactional id, with at most one producer instance and its cached state."""

    def __init__(self, pool: "ProducerPool", at: TopicPartition, transactional_id: str) -> None:
        self._pool = pool
        self._clients = pool.clients
        self._spec = pool.clients.readers.spec
        self._at = at
        self._id = transactional_id
        self._begun = _NEVER
        """When the last transaction of the instance began."""
        self._next: TransactionalProducer | None = None
        """The instance that is connecting already and that `put_up` will use."""
        self.producer: TransactionalProducer | None = None
        self.lost = False
        """Whether another fence with the same id has fenced this one."""
        self.left: Bounds | None = None
        """The partition's bounds after the claim or the last append of the instance. None if they must be read."""

    @contextmanager
    def approaching(self) -> Iterator[None]:
        """Create the next instance and connect it while the block runs. That fences no other producer.

        The instance is closed at the end of the block unless the block calls `put_up`. Raises OptionError,
        StorageError.
        """
        try:
            # A broker may not know an existing topic yet. The request for its partitions retries.
            with suppress(LogNotFoundError):
                self._next = self._new_instance()
                self._next.approach()
            yield
        finally:
            if self._next is not None:
                self._next.close()
                self._next = None

    def _new_instance(self) -> TransactionalProducer:
        settings = recent_settings(self._clients, self._at.topic)
        most = None if settings is None else settings.max_message_bytes
        return TransactionalProducer(self._spec, self._id, most, self._at.partition)

    def put_up(self) -> None:
        """Fence earlier producers of the id, and abort their transactions. Raises KafkaException, StorageError."""
        self._pool.take(self, self._id)
        self._begun = _NEVER
        self.producer, self._next = self._next or self._new_instance(), None
        self._pool.mark_used(self)
        require_coordinators(self._clients.admin)
        self.producer.init(self._spec.open_transaction_seconds)
        self.lost = False

    def put_up_patiently(self) -> None:
        """Call `put_up`, and retry transient errors. Raises StorageError, and OptionError without a valid token."""
        wait = Wait(self._spec.patience_seconds, f"claiming partition {self._at.partition} of topic {self._at.topic}")
        while True:
            try:
                return self.put_up()
            except KafkaException as error:
                self._clients.admin.require_token()
                code = error.args[0].code()
                # FENCED: another writer claimed the partition at the same time.
                is_retried = passes(code, reached=True) or meaning_of(code) is Meaning.FENCED
                if not is_retried or not wait.again(reason_of(code)):
                    raise plain_error(error, "claiming a partition", *to_claim(self._spec)) from None

    @property
    def instance(self) -> TransactionalProducer:
        """Return the producer instance. Call it only after `put_up`."""
        if self.producer is None:
            msg = "a partition is written only after it was claimed"
            raise AssertionError(msg)
        return self.producer

    @property
    def is_clean(self) -> bool:
        """Return whether the instance can be reused for another transaction: its connections are proven clean."""
        return self.producer is not None and self.producer.proven_clean()

    @property
    def timed_out(self) -> bool:
        """Return whether the last transaction has been open for so long that the brokers may have aborted it."""
        passed = max(now - then for now, then in zip(_clocks(), self._begun, strict=True))
        return passed >= self._spec.transaction_timeout_ms / 1000

    def mark_used(self) -> None:
        """Mark the instance as the most recently used of the process."""
        if self.producer is not None:
            self._pool.mark_used(self)

    def begin(self) -> None:
        """Begin a transaction. Raises KafkaException."""
        self.instance.begin()
        self._begun = _clocks()

    def abort(self) -> None:
        """Abort the open transaction. If that fails, close the instance, and the transaction times out."""
        if self.producer is not None and not self.producer.abort():
            self.drop()

    def code_of(self, error: KafkaException) -> int:
        """Return the code of the first error. After an instance is fenced, its messages fail only with `PURGED`."""
        deadline = time.monotonic() + timing.current().fatal_report
        while self.producer is not None and error.args[0].code() in PURGED and time.monotonic() < deadline:
            if self.producer.fatal is not None:
                return int(self.producer.fatal.code())
            with suppress(KafkaException), self.producer.watched():
                self.producer.client.poll(timing.current().poll_pause)
        return int(error.args[0].code())

    def give_way(self) -> None:
        """Yield the id to another writer of this process, as if the brokers had fenced this one."""
        self.drop()
        self.lost = True

    def drop(self) -> None:
        """Close the instance. The id's next producer, or the transaction timeout, aborts its open transaction."""
        self._pool.forget(self)
        if self.producer is not None:
            self.producer.close()
        self.producer = None
        self.left = None


def _clocks() -> tuple[float, float]:
    """Return the monotonic clock, which may stop while the machine sleeps, and the wall clock, in seconds."""
    return time.monotonic(), time.time()


class ProducerPool:
    """The fences of one process by transactional id. At most `_MOST_INSTANCES` of them have a producer."""

    def __init__(self, clients: ClientSet) -> None:
        self.clients = clients
        self._holders: WeakValueDictionary[str, Fence] = WeakValueDictionary()
        """A fence that no writer uses any more needs no notice that it lost its id."""
        self._with_instance: dict[Fence, None] = {}
        """The most recently used fence is the last."""

    def take(self, fence: Fence, transactional_id: str) -> None:
        """Give the transactional id to a fence, and room for an instance.

        The fence that held the id yields. The least recently used instances are closed.
        """
        holder = self._holders.get(transactional_id)
        if holder is not None and holder is not fence:
            holder.give_way()
        self._holders[transactional_id] = fence
        fence.drop()
        while len(self._with_instance) >= _MOST_INSTANCES:
            next(iter(self._with_instance)).drop()

    def mark_used(self, fence: Fence) -> None:
        """Mark the instance of a fence as the most recently used."""
        self._with_instance.pop(fence, None)
        self._with_instance[fence] = None

    def forget(self, fence: Fence) -> None:
        """Remove a fence that no longer has an instance."""
        self._with_instance.pop(fence, None)

    def close(self) -> None:
        """Close all instances."""
        for fence in [*self._with_instance]:
            fence.drop()
        self._holders.clear()
