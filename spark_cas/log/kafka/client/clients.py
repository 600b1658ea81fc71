"""Clients of one process: created on first use, never pickled, never used across a fork."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from spark_cas.core.offsets import Bounds
from spark_cas.log import timing
from spark_cas.log.deadline import BackgroundCall, Wait
from spark_cas.log.kafka.accelerators import librdkafka
from spark_cas.log.kafka.accelerators.array_producer import ArrayProducer
from spark_cas.log.kafka.accelerators.connections import DEBUG, Connections, can_follow
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.client_errors import TIMED_OUT, Right, plain_error, reason_of, to_claim
from spark_cas.log.kafka.client.configuration import producer_settings, settings_of, started
from spark_cas.log.kafka.client.object_producer import ObjectProducer
from spark_cas.log.kafka.client.own_threads import SafeConsumer
from spark_cas.log.kafka.settings.client_settings import Client
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.log_lines import log_unused

# ruff: noqa: SLF001 - librdkafka names its own errors with an underscore; they are public

_TRIED_REQUESTS = 2
"""The client retries a transaction request for this many request timeouts. Then a new claim finds the outcome."""

_FENCED_AT_ONCE = 8

_ELSE_BUSY = frozenset({KafkaError._STATE, KafkaError._CONFLICT, KafkaError._PREV_IN_PROGRESS})
"""Errors that are no root cause: a transaction is open, or another call in it is in progress."""

_CONNECT_SHARE = 0.3
_READ_AHEAD_RECORDS = 20_000
"""As many as a read takes in two polls. The client does not know the end of a task's range, and records that it
prefetches past that end are wasted (decision 0011)."""
_FETCH_BYTES = {"max.partition.fetch.bytes": 1_048_576, "fetch.max.bytes": 52_428_800}
"""The defaults of the client for one partition, and for all partitions of a broker."""
_LEAST_FETCH_BYTES = 1_000_000
"""The least that the client accepts for all partitions of a broker."""
_MOST_BYTES = 512 * 1024 * 1024
"""The limit of a response, which is also the client's limit of a decompressed zstd batch: 100 MB by default. If a
producer does not store the decompressed size, the client tries sizes that grow by a factor of three, so the limit is
between a third of this and this. Brokers limit only the compressed size of a batch."""
_FRAME_BYTES = 512
"""The client requires that a response is this much larger than all its records."""
_DESCRIBE_SHARE = 1.2
"""The time to describe a topic, as a multiple of the time after which an answer is late (`Admin.noticing_late`). The
caller then tries other brokers."""


def admin_client(spec: KafkaSpec) -> Admin:
    """Return a client for offsets and topics."""
    return started(partial(Admin, spec), settings_of(spec, Client.ADMIN))


def reader(spec: KafkaSpec, *, scanning: bool, statistics: Callable[[str], None] | None = None) -> Consumer:
    """Open a consumer of committed records that reports the end of a partition. It joins no group.

    ``scanning`` is for a read that takes all its records before it returns the first. If ``statistics`` is set, the
    consumer calls it with the client's statistics during polls. Such a consumer is for a slow read, and fetches no
    more at a time than one partition's share.
    """
    values = settings_of(spec, Client.CONSUMER)
    watching: dict[str, Any] = {}
    if statistics is not None:
        watching = {
            "stats_cb": statistics,
            "statistics.interval.ms": 250,
            # Inside an aborted transaction librdkafka (2.16) doubles the size of each fetch, until a response takes
            # longer than the request timeout, each time it is requested.
            "fetch.max.bytes": max(
                _LEAST_FETCH_BYTES, min(int(values.get(name, most)) for name, most in _FETCH_BYTES.items())
            ),
        }
    return started(
        SafeConsumer,
        {
            # How long a broker waits for more records at the end of a partition. The client repeats its fetches while
            # the reader processes records.
            "fetch.wait.max.ms": 10,
            "queued.min.messages": _READ_AHEAD_RECORDS,
            **values,
            # A scan detects the end of a partition by an empty response.
            **({"fetch.wait.max.ms": 1} if scanning else {}),
            "group.id": f"{spec.prefix}/no-group",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            # By default the client stops fetching for a second when its queue is full.
            "fetch.queue.backoff.ms": 5,
            "receive.message.max.bytes": max(_MOST_BYTES, int(values.get("fetch.max.bytes", 0)) + _FRAME_BYTES),
            **watching,
        },
    )


def group_member(spec: KafkaSpec, group: str, on_commit: Callable[[Any, Any], None]) -> Consumer:
    """Return a consumer that names a group without joining it, and sees no offsets of open transactions.

    `Consumer.poll` calls ``on_commit`` with the error and the offsets of a commit.
    """
    return started(
        SafeConsumer,
        {
            **settings_of(spec, Client.CONSUMER),
            # If the user may not read the group, `close` waits for this time. The default is 45 s.
            "session.timeout.ms": 3000,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "on_commit": on_commit,
        },
    )


def _producer(settings: dict[str, Any], topic: str, connections: Connections) -> ArrayProducer | ObjectProducer:
    lib = librdkafka.library()
    if lib is None:
        log_unused("array_producer", "this build of confluent-kafka does not export the functions of librdkafka")
    make = ObjectProducer if lib is None else partial(ArrayProducer, lib)
    return started(lambda values: make(values, topic, connections), settings)


class PlainProducer:
    """A producer without a transactional id: it fences no producer, and no producer fences it."""

    def __init__(self, spec: KafkaSpec, most_batch_bytes: int | None, *, idempotent: bool) -> None:
        delivery_ms = int(spec.patience_seconds * 1000)
        settings = {**producer_settings(spec, most_batch_bytes, delivery_ms), "enable.idempotence": idempotent}
        self.request_bytes: int = settings["batch.size"]
        """A request is full at this many bytes of records."""
        self.client = _producer(settings, spec.topic, Connections())

    stranded = False
    """Never true: without brokers, the client bootstraps from its configured addresses."""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Enclose client calls that serve callbacks."""
        yield

    def close(self) -> None:
        """Drop the client. It does not retry unacknowledged records."""
        self.client.drop()
        del self.client


class Deadlined(BackgroundCall):
    """A call of the client that may never return. After the deadline, the caller has to drop the client."""

    def result(self) -> None:
        """Wait for the call. Raises its exception, and KafkaException with the code of a timeout."""
        try:
            super().result()
        except TimeoutError:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None


class TransactionalProducer:
    """A producer instance of a transactional id that checks whether its next transaction is safe.

    librdkafka implements the transaction protocol without KIP-890 part 2: an EndTxn request that was delayed and
    retried can end the instance's *next* transaction. So an instance runs another transaction only if it is proven
    that none of its requests was sent twice, timed out or was lost.

    One thread at a time uses it and serves its callbacks. ``most_batch_bytes`` is the topic's limit of a batch: the
    broker rejects a larger batch as a whole, and the client does not split it. ``partition`` is the first partition
    to be written.
    """

    def __init__(
        self, spec: KafkaSpec, transactional_id: str, most_batch_bytes: int | None = None, partition: int = 0
    ) -> None:
        self._topic = spec.topic
        self._partition = partition
        self._request_seconds = spec.request_seconds
        self._idle = False
        self._approach: Deadlined | None = None
        self.fatal: KafkaError | None = None
        """The error that made the instance unusable. Errors of its messages report only that they were purged."""
        delivery_ms = int(spec.delivery_seconds * 1000)
        self._settings: dict[str, Any] = {
            **producer_settings(spec, most_batch_bytes, delivery_ms),
            "transactional.id": transactional_id,
            "transaction.timeout.ms": spec.transaction_timeout_ms,
            "enable.idempotence": True,
            # With the other strategy, rebootstrap, the client forgets the coordinators when all connections break.
            # librdkafka 2.16 then waits for them forever in send_offsets_to_transaction, ignoring the timeout.
            "metadata.recovery.strategy": "none",
            # Log state changes of connections, and close the connection of a request that times out.
            **({"debug": DEBUG} if can_follow() else {}),
            "socket.max.fails": 1,
        }
        self.request_bytes: int = self._settings["batch.size"]
        """A request is full at this many bytes of records."""
        self._make_client()

    def _make_client(self) -> None:
        self._closed = False
        self._connections = Connections()
        self.client = _producer(self._settings, self._topic, self._connections)

    def approach(self) -> None:
        """Connect in the background. Before `init`, call nothing else but `close`."""
        client, seconds = self.client, Wait(_CONNECT_SHARE * self._request_seconds, "connecting").left
        self._approach = Deadlined(seconds + timing.current().overdue, lambda: self._connect(client, seconds))

    def init(self, timeout_seconds: float) -> None:
        """Fence earlier holders of the id, and finish or abort their open transactions. Raises KafkaException."""
        wait = Wait(timeout_seconds, f"acquiring a transactional id for topic {self._topic}")
        approach, self._approach = self._approach, None
        if approach is not None:
            approach.result()
            with suppress(KafkaException), self.watched():
                self.client.poll(0)  # process connection changes since then
        while True:
            self._connect(self.client, min(_CONNECT_SHARE * self._request_seconds, wait.left))
            try:
                with self.watched():
                    seconds = min(self._request_seconds, wait.left)
                    self.client.init_transactions(max(timing.current().shortest_request, seconds))
            except KafkaException as error:
                code = error.args[0].code()
                if not error.args[0].retriable() or not wait.again(reason_of(code)):
                    if code in TIMED_OUT and self.connected:
                        raise KafkaException(KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE)) from None
                    raise
                with suppress(KafkaException), self.watched():
                    self.client.poll(0)  # process connection changes since then
                if not self._connections.up:
                    # A restarted, still fenced broker may report no brokers, not even itself. Then the client
                    # (librdkafka 2.16 with this strategy) drops the last broker that it knew, for good.
                    self.close()
                    self._make_client()
            else:
                break
        # Ignore earlier lost requests: they could only fence this instance.
        with suppress(KafkaException), self.watched():
            self.client.poll(0)
        self._connections.forget()
        self._idle = True

    def _connect(self, client: ArrayProducer | ObjectProducer, timeout_seconds: float) -> None:
        """Try to reach the partition's leader until any broker is connected, or the time is over.

        Without a connection the client fails to find the id's coordinator, and retries only after half a second. The
        bootstrap connection does not count: the client drops it after the first reply, which lists the brokers.
        """
        deadline, durations = time.monotonic() + timeout_seconds, timing.current()
        while (left := deadline - time.monotonic()) > 0 and not self._connections.up and not self._closed:
            with suppress(KafkaException), self.watched():
                # The broker may hang, and another one may be connected.
                client.meet_leader(self._partition, min(durations.longest_poll_pause, left))
                if not can_follow():
                    return
            with suppress(KafkaException), self.watched():
                client.poll(6 * durations.poll_pause)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Enclose client calls that serve callbacks, and record a fatal error of the instance."""
        try:
            yield
        except KafkaException as error:
            if error.args[0].fatal():
                self.fatal = error.args[0]
            raise

    def begin(self) -> None:
        self._idle = False
        with self.watched():
            self.client.begin_transaction()

    @property
    def connected(self) -> bool:
        """Whether a broker is connected. If so, a request that timed out had no answer from its coordinator."""
        return self._connections.up

    @property
    def stranded(self) -> bool:
        """Whether the instance has no brokers left to send to, permanently."""
        return self._connections.stranded

    def adding(self, offsets: list[TopicPartition], group: str, member: Consumer) -> Deadlined:
        """Start adding offsets of a group to the open transaction. Its result raises KafkaException.

        ``member`` is a consumer that names the group, for a client that does not accept the bare name.

        librdkafka (2.16) may wait for the group's coordinator forever, ignoring its timeout (its issue 5456).
        """
        client, seconds = self.client, _TRIED_REQUESTS * self._request_seconds
        named = group if isinstance(client, ArrayProducer) else member.consumer_group_metadata()

        def call() -> None:
            with self.watched():
                client.send_offsets_to_transaction(offsets, named, seconds)

        return Deadlined(seconds + timing.current().overdue, call)

    def decided_bounds(self, partition: int) -> Bounds:
        """Return the stable bounds of a partition that was just written to. Raises KafkaException.

        A request to the leader through another client costs several times as much.
        """
        with self.watched():
            return self.client.decided_bounds(partition, self._request_seconds)

    def describe(self) -> tuple[str, int]:
        """Return the topic's id and partition count, as reported by the broker that acknowledged the last records.

        Another client creates objects for each partition, which takes ten times as long if there are many.
        Raises KafkaException. Afterwards the instance may be `stranded`: the broker may have reported no brokers.
        """
        seconds = min(_DESCRIBE_SHARE * timing.current().metadata_lag, self._request_seconds)
        with self.watched():
            try:
                return self.client.describe(seconds)
            finally:
                self.client.poll(0)

    def commit(self) -> None:
        """Commit. Raises KafkaException: then only the ledger, read under a new claim, shows the outcome."""
        with self.watched():
            self.client.commit_transaction(_TRIED_REQUESTS * self._request_seconds)
        self._idle = True

    def abort(self) -> bool:
        """Abort. Return False if that failed and the instance must be dropped."""
        deadline = time.monotonic() + self._request_seconds
        while not self._idle:
            try:
                with self.watched():
                    # The call resumes the last one, and purges records that were requeued for a retry.
                    self.client.abort_transaction(timing.current().first_pause)
                    self._idle = True
            except KafkaException as error:
                if error.args[0].code() != KafkaError._TIMED_OUT or time.monotonic() > deadline:
                    return False
                with suppress(KafkaException), self.watched():
                    self.client.poll(0)  # it waits for the reports of the purged records
        return True

    def root_cause(self, error: KafkaError) -> KafkaError:
        """Return why a message of the open transaction failed. Its own error may be only that it was purged or late.

        The client reports the root cause from any call that a broken transaction does not allow. The call also
        detects whether the instance is unusable.
        """
        try:
            with self.watched():
                self.client.begin_transaction()
        except KafkaException as raised:
            cause: KafkaError = raised.args[0]
            return error if cause.code() in _ELSE_BUSY else cause
        return error

    def proven_clean(self) -> bool:
        """Return whether every request since `init` was answered once, on the connection that it was sent on.

        All requests of a committed or aborted transaction were answered. A retried request had lost its connection
        before, and the client logs that loss before it reports the end of the transaction. Read-only requests may
        stay unanswered, because they change nothing.
        """
        if not self._idle:
            return False
        try:
            with self.watched():
                self.client.poll(0)
        except KafkaException:
            return False
        return self._connections.steady

    def close(self) -> None:
        """Drop the instance. The id's next holder or the timeout ends its open transaction.

        This does not abort, because a commit of the transaction may be in progress.
        """
        self._closed, self._approach = True, None
        self.client.drop()
        del self.client


def fence(spec: KafkaSpec, ids: Iterable[str]) -> None:
    """Take over transactional ids. The brokers abort their open transactions and reject their writers, however late.

    Raises StorageError.
    """

    def take_over(transactional_id: str) -> None:
        producer = TransactionalProducer(spec, transactional_id)
        try:
            producer.init(spec.open_transaction_seconds)
        except KafkaException as error:
            own = transactional_id.startswith(f"{spec.prefix}/")
            rights = to_claim(spec) if own else (Right("Write", "transactional-id", transactional_id),)
            raise plain_error(error, "fencing a transactional id", *rights) from None
        finally:
            producer.close()

    with ThreadPoolExecutor(_FENCED_AT_ONCE) as threads:
        deque(threads.map(take_over, ids), maxlen=0)  # after an error, this cancels the others
