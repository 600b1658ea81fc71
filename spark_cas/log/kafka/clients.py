"""Clients of one process: made when first needed, never pickled, never used across a fork."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from spark_cas.log.kafka.admin import Admin
from spark_cas.log.kafka.asking import REQUEST_SECONDS
from spark_cas.log.kafka.codes import PURGED
from spark_cas.log.kafka.secrets import resolve
from spark_cas.log.kafka.setting_table import Client
from spark_cas.log.kafka.settings import for_client
from spark_cas.log.kafka.spec import KafkaSpec
from spark_cas.log.kafka.unusable import unusable

_RECONNECT_MS = 20
_DELIVERY_MS = 45_000
_BATCH_BYTES = 1_000_000
_NO_LIMIT_BYTES = 1_000_000_000
"""The most that the client may be told: how large a record may be is the topic's to say."""
_STATISTICS_MS = 3
_STATISTICS_WITHIN_SECONDS = 0.2
_STRAY = ("txretries", "req_timeouts", "txerrs", "rxerrs", "disconnects")
"""What a broker's statistics count when a request or its reply may be under way after its time."""

_CONNECT_SECONDS = 3.0
_TURN_SECONDS = 0.1
"""A call that serves callbacks lasts no longer: the client splits one of 0.2 s and more."""

_FLUSH_TURN_SECONDS = 0.001

_LIBRDKAFKA_CLOCK_NS = time.time_ns if sys.platform == "darwin" else time.monotonic_ns
"""The clock of the field ``ts`` in statistics."""

Made = TypeVar("Made")


def _common(spec: KafkaSpec, client: Client) -> dict[str, Any]:
    """What every client of a spec is set up with. The user's settings come first: ours always hold."""
    given: dict[str, Any] = resolve(for_client(spec.client_options, client))
    request_ms = int(REQUEST_SECONDS * 1000)
    return {
        # Half of it is how long a new client waits between its first connection and the next.
        "reconnect.backoff.ms": min(_RECONNECT_MS, int(given.get("reconnect.backoff.max.ms", _RECONNECT_MS))),
        **given,
        # Named for consumers, but it holds for all: to ask for a topic that was deleted does not make it anew.
        "allow.auto.create.topics": False,
        "bootstrap.servers": spec.bootstrap_servers,
        "socket.timeout.ms": min(int(given.get("socket.timeout.ms", request_ms)), request_ms),
        "log_level": 2,
    }


def _made(make: Callable[[dict[str, Any]], Made], settings: dict[str, Any]) -> Made:
    """A client. Raises OptionError for settings that it cannot start with."""
    try:
        return make(settings)
    except KafkaException as error:
        raise unusable(error, settings) from None


def admin_client(spec: KafkaSpec) -> Admin:
    """A client for offsets and topics."""
    return _made(Admin, _common(spec, Client.ADMIN))


def reader(spec: KafkaSpec, *, fetch_wait_ms: int = 500) -> Consumer:
    """A consumer of committed records that tells where a partition ends. It joins no group."""
    return _made(
        Consumer,
        {
            **_common(spec, Client.CONSUMER),
            "group.id": f"{spec.prefix}/no-group",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": fetch_wait_ms,
            # With its queue full, at 100,000 records, the client otherwise fetches nothing for a second.
            "fetch.queue.backoff.ms": 5,
        },
    )


def group_member(spec: KafkaSpec, group: str) -> Consumer:
    """A consumer that names a group and never joins it, and sees no offset whose transaction is open."""
    return _made(
        Consumer,
        {
            **_common(spec, Client.CONSUMER),
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        },
    )


def _producing(spec: KafkaSpec, most_batch_bytes: int | None) -> dict[str, Any]:
    """What every producer is set up with: acknowledged is what all replicas in sync have."""
    common = _common(spec, Client.PRODUCER)
    delivery_ms = min(_DELIVERY_MS, spec.transaction_timeout_ms)
    batch_bytes = int(common.get("batch.size", _BATCH_BYTES))
    return {
        "linger.ms": 1,
        "message.max.bytes": _NO_LIMIT_BYTES,
        **common,
        "batch.size": min(batch_bytes, most_batch_bytes or batch_bytes),
        "message.timeout.ms": min(int(common.get("message.timeout.ms", delivery_ms)), delivery_ms),
        "acks": "all",
        "max.in.flight": spec.max_in_flight,
        "queue.buffering.max.messages": 0,
        "queue.buffering.max.kbytes": 2_097_151,
    }


class PlainProducer:
    """A producer without a transactional id: it fences nobody, and nobody fences it."""

    def __init__(self, spec: KafkaSpec, most_batch_bytes: int | None, *, idempotent: bool) -> None:
        settings = {**_producing(spec, most_batch_bytes), "enable.idempotence": idempotent}
        self.client: Producer = _made(Producer, settings)

    def flush(self, timeout_seconds: float, until: Callable[[], bool]) -> bool:
        """Send what waits and serve its reports; False when some were not served in time. Raises KafkaException.

        It ends early once ``until`` holds.
        """
        deadline = time.monotonic() + timeout_seconds
        while self.client.flush(_TURN_SECONDS / 2) and not until():
            if time.monotonic() > deadline:
                return False
        return True

    def close(self) -> None:
        """Let go of it. What was not acknowledged is not sent again."""
        self.client.purge()
        del self.client


class TransactionalProducer:
    """One producer instance of a transactional id, and whether its next transaction would be safe.

    librdkafka speaks the transaction protocol without KIP-890 part 2: an EndTxn request that was delayed and
    sent again can end the instance's *next* transaction. So an instance serves another transaction only while
    its statistics prove that no request of it was ever retried, timed out or lost.

    A thread serves its callbacks: statistics come whether or not somebody waits for them. ``most_batch_bytes`` is
    what the topic takes at once: the broker refuses a larger batch whole, and the client does not part it.
    """

    def __init__(self, spec: KafkaSpec, transactional_id: str, most_batch_bytes: int | None = None) -> None:
        self._topic = spec.topic
        self._snapshot = '{"ts": 0, "brokers": {}}'
        self._idle_since_us: int | None = None
        self._closed = False
        self.fatal: KafkaError | None = None
        """Why the instance is good for nothing any more. Errors of its messages say only that they were purged."""
        self.client: Producer = _made(
            Producer,
            {
                **_producing(spec, most_batch_bytes),
                "transactional.id": transactional_id,
                "transaction.timeout.ms": spec.transaction_timeout_ms,
                "enable.idempotence": True,
                # The other strategy, once all connections broke, forgets the coordinators, for whom librdkafka 2.16
                # then waits for ever in send_offsets_to_transaction, whatever its timeout.
                "metadata.recovery.strategy": "none",
                "statistics.interval.ms": _STATISTICS_MS,
                "stats_cb": self._take_snapshot,
            },
        )
        self._server = Thread(target=self._serve, daemon=True)
        self._server.start()

    def init(self, timeout_seconds: float) -> None:
        """Fence every earlier holder of the id, and finish or abort what it left open. Raises KafkaException."""
        deadline = time.monotonic() + timeout_seconds
        self._connect(min(_CONNECT_SECONDS, timeout_seconds))
        while True:
            try:
                with self.watched():
                    self.client.init_transactions(max(0.1, deadline - time.monotonic()))
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() >= deadline:
                    raise
            else:
                break
        self._idle_since_us = _LIBRDKAFKA_CLOCK_NS() // 1000

    def _connect(self, timeout_seconds: float) -> None:
        """Ask for the topic's leaders until a broker is connected, or the time is over.

        Without a connection the client looks for the id's coordinator in vain, and not again for half a second. The
        one that it begins with is no good: it is given up with the first reply, which tells it who the brokers are.
        """
        deadline = time.monotonic() + timeout_seconds
        while (left := deadline - time.monotonic()) > 0 and not self._connected():
            with suppress(KafkaException), self.watched():
                self.client.list_topics(self._topic, left)
            time.sleep(_STATISTICS_MS / 1000)

    def _connected(self) -> bool:
        brokers = json.loads(self._snapshot)["brokers"].values()
        return any(broker["nodeid"] >= 0 and broker["state"] == "UP" for broker in brokers)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Calls of the client that serve its callbacks, and so learn first that the instance is done for."""
        try:
            yield
        except KafkaException as error:
            if error.args[0].fatal():
                self.fatal = error.args[0]
            raise

    def flush(self, timeout_seconds: float, until: Callable[[], bool]) -> bool:
        """Send what waits and serve its reports; False when some were not served in time. Raises KafkaException.

        It ends early once ``until`` holds. In short turns: within a longer one the client (2.16) goes on to run
        callbacks after one that told it of a fatal error, with that error raised already, and what comes of it is no
        exception; nor does it notice by itself that the other thread served the last report.
        """
        deadline = time.monotonic() + timeout_seconds
        with self.watched():
            while self.client.flush(_FLUSH_TURN_SECONDS) and not until():
                if time.monotonic() > deadline:
                    return False
        return True

    def begin(self) -> None:
        """Begin a transaction. Raises KafkaException."""
        self._idle_since_us = None
        with self.watched():
            self.client.begin_transaction()

    def commit(self, timeout_seconds: float) -> None:
        """Commit. Raises KafkaException: then only the ledger, read under a new claim, tells what became of it."""
        with self.watched():
            self.client.commit_transaction(timeout_seconds)
        self._idle_since_us = _LIBRDKAFKA_CLOCK_NS() // 1000

    def abort(self) -> bool:
        """Abort; False when that failed and the instance must be dropped."""
        try:
            with self.watched():
                self.client.abort_transaction(REQUEST_SECONDS)
        except KafkaException:
            return False
        self._idle_since_us = _LIBRDKAFKA_CLOCK_NS() // 1000
        return True

    def what_broke(self, error: KafkaError) -> KafkaError:
        """Why a message of the open transaction failed. Its own error may say only that it was purged or came late.

        The client tells to whoever asks for something that a broken transaction does not allow.
        """
        if error.code() not in (*PURGED, KafkaError._STATE):  # noqa: SLF001 - it is public
            return error
        try:
            self.client.begin_transaction()
        except KafkaException as told:
            cause: KafkaError = told.args[0]
            return error if cause.code() == KafkaError._STATE else cause  # noqa: SLF001 - it is public
        return error

    def proven_clean(self) -> bool:
        """Whether a snapshot since the last transaction ended, or the first may begin, shows no request astray."""
        if self._idle_since_us is None:
            return False
        deadline = time.monotonic() + _STATISTICS_WITHIN_SECONDS
        while time.monotonic() < deadline:
            statistics = json.loads(self._snapshot)
            if statistics["ts"] >= self._idle_since_us:
                brokers = statistics["brokers"].values()
                return all(broker[count] == 0 for broker in brokers for count in _STRAY)
            time.sleep(_STATISTICS_MS / 4000)
        return False

    def close(self) -> None:
        """Let go of the instance. What it left open is ended by the id's next holder or by time.

        Not by the client's own close, which would abort a transaction whose commit may be under way.
        """
        self._closed = True
        self._server.join()
        self.client.purge()
        del self.client

    def _take_snapshot(self, statistics: str) -> None:
        self._snapshot = statistics

    def _serve(self) -> None:
        while not self._closed:
            with suppress(KafkaException), self.watched():
                self.client.poll(_TURN_SECONDS)
