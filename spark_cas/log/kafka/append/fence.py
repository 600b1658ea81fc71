"""The fence of a transactional id (KIP-98): only its newest holder writes; the brokers fence earlier ones."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from confluent_kafka import KafkaException, TopicPartition

from spark_cas.core.errors import LogNotFoundError
from spark_cas.core.offsets import Bounds
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.client.codes import PURGED, Meaning, meaning_of, passes, reason_of
from spark_cas.log.kafka.client.error_text import plain_error
from spark_cas.log.kafka.client.kept_clients import ClientSet
from spark_cas.log.kafka.client.rights import to_claim
from spark_cas.log.kafka.coordinators import require_coordinators
from spark_cas.log.kafka.topic_settings import recent_settings
from spark_cas.log.patience import Wait

_MOST_INSTANCES = 8
"""An instance has threads and connections of its own, in use or not."""

_FATAL_PAUSE_SECONDS = 0.0005
_FATAL_WITHIN_SECONDS = 0.5
_NEVER = (math.inf, math.inf)


class Fences:
    """The fences of one process: of each transactional id the newest only, and only some with a producer instance."""

    def __init__(self, clients: ClientSet) -> None:
        self.spec = clients.readers.spec
        self._clients = clients
        self._holders: dict[str, Fence] = {}
        self._with_instance: dict[Fence, None] = {}
        """Whichever was used last at the end."""

    def take(self, fence: "Fence", transactional_id: str) -> None:
        """Let a fence hold an id and have an instance. The id's holder gives way, and whose was used least lately."""
        holder = self._holders.get(transactional_id)
        if holder is not None and holder is not fence:
            holder.give_way()
        self._holders[transactional_id] = fence
        fence.drop()
        while len(self._with_instance) >= _MOST_INSTANCES:
            next(iter(self._with_instance)).drop()

    def mark_used(self, fence: "Fence") -> None:
        """Its instance was used last."""
        self._with_instance.pop(fence, None)
        self._with_instance[fence] = None

    def forget(self, fence: "Fence") -> None:
        """It has no instance any more."""
        self._with_instance.pop(fence, None)

    def most_batch_bytes(self, topic: str) -> int | None:
        """What a topic takes at once; None where this principal may not see that. Raises as `topic_settings`."""
        settings = recent_settings(self._clients, topic)
        return None if settings is None else settings.max_message_bytes

    def require_coordinators(self) -> None:
        """Check that transactions are possible at all. Raises NotGivenError, StorageError."""
        require_coordinators(self._clients.admin)

    def close(self) -> None:
        """Let go of all instances."""
        for fence in [*self._with_instance]:
            fence.drop()
        self._holders.clear()


class Fence:
    """One writer's hold on a transactional id: at most one producer instance, and what is known as of it."""

    def __init__(self, fences: Fences, at: TopicPartition, transactional_id: str) -> None:
        self._fences = fences
        self._spec = fences.spec
        self._at = at
        self._id = transactional_id
        self._begun = _NEVER
        """When the instance's last transaction began."""
        self._next: TransactionalProducer | None = None
        """The instance that the fence is put up with, where it is on its way already."""
        self.producer: TransactionalProducer | None = None
        self.lost = False
        """Whether another holder fenced this one."""
        self.knows_entry = False
        """Whether the job's ledger entry was read, or written, since the fence is up."""
        self.left: Bounds | None = None
        """What the partition kept behind the instance's claim, or last append; None where it is to be asked for."""

    @contextmanager
    def approaching(self) -> Iterator[None]:
        """Make the next instance and connect it while the block runs, which fences nobody.

        It is let go of unless the fence is put up inside. Raises OptionError, StorageError.
        """
        try:
            # A broker may not know a topic that is there: who asks for its partitions looks again.
            with suppress(LogNotFoundError):
                self._next = self._new_instance()
                self._next.approach()
            yield
        finally:
            if self._next is not None:
                self._next.close()
                self._next = None

    def _new_instance(self) -> TransactionalProducer:
        most = self._fences.most_batch_bytes(self._at.topic)
        return TransactionalProducer(self._spec, self._id, most, self._at.partition)

    def put_up(self) -> None:
        """Fence earlier holders of the id, and end what they left open. Raises KafkaException, StorageError."""
        self._fences.take(self, self._id)
        self.knows_entry = False
        self._begun = _NEVER
        self.producer, self._next = self._next or self._new_instance(), None
        self._fences.mark_used(self)
        self._fences.require_coordinators()
        self.producer.init(self._spec.claim_timeout_ms / 1000)
        self.lost = False

    def put_up_patiently(self) -> None:
        """`put_up`, once the brokers let it. Raises StorageError."""
        wait = Wait(self._spec.patience_seconds, f"claiming partition {self._at.partition} of topic {self._at.topic}")
        while True:
            try:
                return self.put_up()
            except KafkaException as error:
                code = error.args[0].code()
                # Fenced: by another claim at the same time.
                goes_on = passes(code, met=True) or meaning_of(code) is Meaning.FENCED
                if not goes_on or not wait.again(reason_of(code)):
                    raise plain_error(error, "claiming a partition", *to_claim(self._spec)) from None

    @property
    def instance(self) -> TransactionalProducer:
        """The producer instance of a fence that is up."""
        if self.producer is None:
            msg = "a partition is written only after it was claimed"
            raise AssertionError(msg)
        return self.producer

    @property
    def is_clean(self) -> bool:
        """Whether a transaction may follow at once: it is safe, and nobody of the job wrote since the fence is up."""
        return self.knows_entry and self.producer is not None and self.producer.proven_clean()

    @property
    def timed_out(self) -> bool:
        """Whether the last transaction has been open for so long that the brokers may have ended it."""
        passed = max(now - then for now, then in zip(_clocks(), self._begun, strict=True))
        return passed >= self._spec.transaction_timeout_ms / 1000

    def mark_used(self) -> None:
        """Of all instances of the process this one was used last."""
        if self.producer is not None:
            self._fences.mark_used(self)

    def begin(self) -> None:
        """Begin a transaction. Raises KafkaException."""
        self.instance.begin()
        self._begun = _clocks()

    def abort(self) -> None:
        """Abort the open transaction; where the brokers do not take that, drop the instance, and time ends it."""
        if not self.instance.abort():
            self.drop()

    def end_refused(self) -> None:
        """Abort a transaction whose records the brokers refused, so that readers do not wait for its timeout."""
        if self.producer is not None:
            self.producer.abort()

    def code_of(self, error: KafkaException) -> int:
        """What went wrong first: once an instance is fenced, its messages are purged and say no more than that."""
        deadline = time.monotonic() + _FATAL_WITHIN_SECONDS
        while self.producer is not None and error.args[0].code() in PURGED and time.monotonic() < deadline:
            if self.producer.fatal is not None:
                return int(self.producer.fatal.code())
            with suppress(KafkaException), self.producer.watched():
                self.producer.client.poll(_FATAL_PAUSE_SECONDS)
        return int(error.args[0].code())

    def give_way(self) -> None:
        """Another writer of this process takes the id over: as if it were another process."""
        self.drop()
        self.lost = True

    def drop(self) -> None:
        """Let go of the instance. What it left open is ended by the id's next holder, or by time."""
        self._fences.forget(self)
        if self.producer is not None:
            self.producer.close()
        self.producer = None
        self.left = None


def _clocks() -> tuple[float, float]:
    """Seconds on the steady clock, which stands still while the machine sleeps, and on one that may be set."""
    return time.monotonic(), time.time()
