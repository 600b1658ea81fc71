"""Clients of one process: made when first needed, never pickled, never used across a fork."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from spark_cas.core.offsets import Bounds
from spark_cas.log.kafka.client import librdkafka
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.array_producer import ArrayProducer
from spark_cas.log.kafka.client.codes import TIMED_OUT, reason_of
from spark_cas.log.kafka.client.configuration import producer_settings, settings_of, started
from spark_cas.log.kafka.client.connections import DEBUG, Connections
from spark_cas.log.kafka.client.deadlined import Deadlined
from spark_cas.log.kafka.client.object_producer import ObjectProducer
from spark_cas.log.kafka.settings.table import Client
from spark_cas.log.kafka.spec import KafkaSpec
from spark_cas.log.patience import Wait

# ruff: noqa: SLF001 - librdkafka names its own errors with an underscore; they are public

_OVERDUE_SECONDS = 1.0
_TRIED_REQUESTS = 2
"""For so long the client sends a request of a transaction again, before a new claim finds out what became of it."""

_ELSE_BUSY = frozenset({KafkaError._STATE, KafkaError._CONFLICT, KafkaError._PREV_IN_PROGRESS})
"""What is no cause: a transaction is open, or another call in it is under way."""

_ABORT_SECONDS = 0.02
_LEAST_SECONDS = 0.1
_CONNECT_SHARE = 0.3
_SCAN_FETCH_MS = 1
"""How long a broker waits for more at the end of a partition, which a read comes to know by an answer without any."""
_READ_FETCH_MS = 10
"""The same of other reads: while their records are taken the client asks again and again."""
_READ_AHEAD_RECORDS = 20_000
"""As many as a read takes in two steps. The client does not know where a task's range ends, and what it fetches ahead
from there on is for nothing (decision 0041)."""
_STATISTICS_MS = 250
_FETCH_BYTES = {"max.partition.fetch.bytes": 1_048_576, "fetch.max.bytes": 52_428_800}
"""The defaults of the client for one partition, and for all partitions of a broker."""
_LEAST_FETCH_BYTES = 1_000_000
"""The client accepts no less for all partitions of a broker."""
_MOST_BYTES = 2**31 - 1
"""The client's largest limit of a response, which is also its limit of a decompressed zstd batch: 100 MB by default.
Brokers limit only the compressed size of a batch."""
_CONNECT_PAUSE_SECONDS = 0.003
_DESCRIBING_SECONDS = 1.2
"""Who is not answered by then was kept waiting for long (`Admin.noticing_late`), and asks other brokers."""
_MEETING_SECONDS = 0.1
"""So long one broker is waited for, which may be the one that stands still, before it is looked who is connected."""


def admin_client(spec: KafkaSpec) -> Admin:
    """A client for offsets and topics."""
    return started(partial(Admin, spec), settings_of(spec, Client.ADMIN))


def reader(spec: KafkaSpec, *, scanning: bool, statistics: Callable[[str], None] | None = None) -> Consumer:
    """Open a consumer of committed records that reports the end of a partition. It joins no group.

    ``scanning`` is for a read that takes all its records before it returns the first. ``statistics`` is called with
    the client's statistics while the consumer is polled. Such a consumer is for a slow read, and does not fetch more
    at a time than one partition's share.
    """
    given = settings_of(spec, Client.CONSUMER)
    watching: dict[str, Any] = {}
    if statistics is not None:
        watching = {
            "stats_cb": statistics,
            "statistics.interval.ms": _STATISTICS_MS,
            # Inside an aborted transaction librdkafka (2.16) doubles the size of each fetch, until a response takes
            # longer than the request timeout, each time it is requested.
            "fetch.max.bytes": max(
                _LEAST_FETCH_BYTES, min(int(given.get(name, most)) for name, most in _FETCH_BYTES.items())
            ),
        }
    return started(
        Consumer,
        {
            "fetch.wait.max.ms": _READ_FETCH_MS,
            "queued.min.messages": _READ_AHEAD_RECORDS,
            **given,
            **({"fetch.wait.max.ms": _SCAN_FETCH_MS} if scanning else {}),
            "group.id": f"{spec.prefix}/no-group",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            # With its queue full the client otherwise fetches nothing for a second.
            "fetch.queue.backoff.ms": 5,
            "receive.message.max.bytes": _MOST_BYTES,
            **watching,
        },
    )


def _unheard(*_: object) -> None:
    """Nobody asks what became of commits."""


def group_member(spec: KafkaSpec, group: str, on_commit: Callable[[Any, Any], None] = _unheard) -> Consumer:
    """A consumer that names a group and never joins it, and sees no offset whose transaction is open.

    ``on_commit`` is called by `Consumer.poll` with what became of a commit: its error and its offsets.
    """
    return started(
        Consumer,
        {
            **settings_of(spec, Client.CONSUMER),
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "on_commit": on_commit,
        },
    )


def _producer(settings: dict[str, Any], topic: str, connections: Connections) -> ArrayProducer | ObjectProducer:
    lib = librdkafka.library()
    make = ObjectProducer if lib is None else partial(ArrayProducer, lib)
    return started(lambda given: make(given, topic, connections), settings)


class PlainProducer:
    """A producer without a transactional id: it fences nobody, and nobody fences it."""

    def __init__(self, spec: KafkaSpec, most_batch_bytes: int | None, *, idempotent: bool) -> None:
        delivery_ms = int(spec.patience_seconds * 1000)
        settings = {**producer_settings(spec, most_batch_bytes, delivery_ms), "enable.idempotence": idempotent}
        self.request_bytes: int = settings["batch.size"]
        """A request is full with so many bytes of records."""
        self.client = _producer(settings, spec.topic, Connections())

    stranded = False
    """It begins anew with the addresses that it was given."""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Calls of the client that serve its callbacks."""
        yield

    def close(self) -> None:
        """Let go of it. What was not acknowledged is not sent again."""
        self.client.drop()
        del self.client


class TransactionalProducer:
    """One producer instance of a transactional id, and whether its next transaction would be safe.

    librdkafka speaks the transaction protocol without KIP-890 part 2: an EndTxn request that was delayed and
    sent again can end the instance's *next* transaction. So an instance serves another transaction only while it
    is proven that no request of it was ever sent twice, timed out or lost.

    One thread at a time uses it and serves its callbacks. ``most_batch_bytes`` is what the topic takes at once: the
    broker refuses a larger batch whole, and the client does not part it. ``partition`` is the one that is written to
    first.
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
        """Why the instance is good for nothing any more. Errors of its messages say only that they were purged."""
        delivery_ms = int(spec.delivery_seconds * 1000)
        self._settings: dict[str, Any] = {
            **producer_settings(spec, most_batch_bytes, delivery_ms),
            "transactional.id": transactional_id,
            "transaction.timeout.ms": spec.transaction_timeout_ms,
            "enable.idempotence": True,
            # The other strategy, once all connections broke, forgets the coordinators, for whom librdkafka 2.16
            # then waits for ever in send_offsets_to_transaction, whatever its timeout.
            "metadata.recovery.strategy": "none",
            # What becomes of connections is logged; a request that times out takes its connection with it.
            "debug": DEBUG,
            "socket.max.fails": 1,
        }
        self.request_bytes: int = self._settings["batch.size"]
        """A request is full with so many bytes of records."""
        self._make_client()

    def _make_client(self) -> None:
        self._closed = False
        self._connections = Connections()
        self.client = _producer(self._settings, self._topic, self._connections)

    def approach(self) -> None:
        """Connect while something else is done; nothing else of the instance is used before `init`."""
        client, seconds = self.client, Wait(_CONNECT_SHARE * self._request_seconds, "connecting").left
        self._approach = Deadlined(lambda: self._connect(client, seconds), seconds + _OVERDUE_SECONDS)

    def init(self, timeout_seconds: float) -> None:
        """Fence every earlier holder of the id, and finish or abort what it left open. Raises KafkaException."""
        wait = Wait(timeout_seconds, f"claiming what is written to topic {self._topic}")
        approach, self._approach = self._approach, None
        if approach is not None:
            approach.result()
            with suppress(KafkaException), self.watched():
                self.client.poll(0)  # what became of the connection since
        while True:
            self._connect(self.client, min(_CONNECT_SHARE * self._request_seconds, wait.left))
            try:
                with self.watched():
                    self.client.init_transactions(max(_LEAST_SECONDS, min(self._request_seconds, wait.left)))
            except KafkaException as error:
                code = error.args[0].code()
                if not error.args[0].retriable() or not wait.again(reason_of(code)):
                    if code in TIMED_OUT and self.connected:
                        raise KafkaException(KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE)) from None
                    raise
                with suppress(KafkaException), self.watched():
                    self.client.poll(0)  # what became of the connections meanwhile
                if not self._connections.up:
                    # A broker that is back and fenced may tell of no brokers, itself included. Then the client
                    # (librdkafka 2.16, without the other strategy above) lets go of the last that it knew, for ever.
                    self.close()
                    self._make_client()
            else:
                break
        # What went astray before could only fence this instance.
        with suppress(KafkaException), self.watched():
            self.client.poll(0)
        self._connections.forget()
        self._idle = True

    def _connect(self, client: ArrayProducer | ObjectProducer, timeout_seconds: float) -> None:
        """Look for the leader of the partition until a broker is connected, that one or another, or the time is over.

        Without a connection the client looks for the id's coordinator in vain, and not again for half a second. The
        one that it begins with is no good: it is given up with the first reply, which tells it who the brokers are.
        """
        deadline = time.monotonic() + timeout_seconds
        while (left := deadline - time.monotonic()) > 0 and not self._connections.up and not self._closed:
            with suppress(KafkaException), self.watched():
                client.meet_leader(self._partition, min(_MEETING_SECONDS, left))
            with suppress(KafkaException), self.watched():
                client.poll(_CONNECT_PAUSE_SECONDS)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Calls of the client that serve its callbacks, and so learn first that the instance is done for."""
        try:
            yield
        except KafkaException as error:
            if error.args[0].fatal():
                self.fatal = error.args[0]
            raise

    def begin(self) -> None:
        """Begin a transaction. Raises KafkaException."""
        self._idle = False
        with self.watched():
            self.client.begin_transaction()

    @property
    def connected(self) -> bool:
        """Whether a broker is connected. If a request timed out then, its coordinator did not answer."""
        return self._connections.up

    @property
    def stranded(self) -> bool:
        """Whether it has nobody left to send to, and never will."""
        return self._connections.stranded

    def adding(self, offsets: list[TopicPartition], group: str, member: Consumer) -> Deadlined:
        """Begin to put offsets of a group into the open transaction. Its result raises KafkaException.

        ``member`` is a consumer that names the group, for a client that takes no bare name.

        librdkafka (2.16) may wait for the group's coordinator for ever, whatever its timeout (its issue 5456).
        """
        client, seconds = self.client, _TRIED_REQUESTS * self._request_seconds
        named = group if isinstance(client, ArrayProducer) else member.consumer_group_metadata()

        def call() -> None:
            with self.watched():
                client.send_offsets_to_transaction(offsets, named, seconds)

        return Deadlined(call, seconds + _OVERDUE_SECONDS)

    def decided_bounds(self, partition: int) -> Bounds:
        """The bounds of what is decided in a partition that was just written to. Raises KafkaException.

        To have another client ask the leader costs several times as much.
        """
        with self.watched():
            return self.client.decided_bounds(partition, self._request_seconds)

    def describe(self) -> tuple[str, int]:
        """The topic's id, and how many partitions it has, as the broker tells that took the last records.

        Another client makes objects of what it is told of each partition, which with many takes ten times as long.
        Raises KafkaException. Behind it the instance may be `stranded`: the broker may have told it of no brokers.
        """
        with self.watched():
            try:
                return self.client.describe(min(_DESCRIBING_SECONDS, self._request_seconds))
            finally:
                self.client.poll(0)

    def commit(self) -> None:
        """Commit. Raises KafkaException: then only the ledger, read under a new claim, tells what became of it."""
        with self.watched():
            self.client.commit_transaction(_TRIED_REQUESTS * self._request_seconds)
        self._idle = True

    def abort(self) -> bool:
        """Abort; False when that failed and the instance must be dropped."""
        deadline = time.monotonic() + self._request_seconds
        while not self._idle:
            try:
                with self.watched():
                    # The call goes on where the last one was, and purges what has come back to be sent again.
                    self.client.abort_transaction(_ABORT_SECONDS)
                    self._idle = True
            except KafkaException as error:
                if error.args[0].code() != KafkaError._TIMED_OUT or time.monotonic() > deadline:
                    return False
                with suppress(KafkaException), self.watched():
                    self.client.poll(0)  # it waits for the reports of what it purged
        return True

    def what_broke(self, error: KafkaError) -> KafkaError:
        """Why a message of the open transaction failed. Its own error may say only that it was purged or came late.

        The client tells to whoever asks for something that a broken transaction does not allow, and so it is learnt
        whether the instance is done for.
        """
        try:
            with self.watched():
                self.client.begin_transaction()
        except KafkaException as told:
            cause: KafkaError = told.args[0]
            return error if cause.code() in _ELSE_BUSY else cause
        return error

    def proven_clean(self) -> bool:
        """Whether every request since `init` was answered on the connection that it was sent on, once.

        Of a transaction that was committed or aborted all requests were answered; one that was sent again had lost
        its connection before, and of that there is a line before the end of the transaction was known. A question may
        not be answered: it changes nothing.
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
        """Let go of the instance. What it left open is ended by the id's next holder or by time.

        Not by an abort, for the transaction may be one whose commit is under way.
        """
        self._closed, self._approach = True, None
        self.client.drop()
        del self.client
