"""Send requests to the brokers, and explain failures that librdkafka reports only to callbacks and its log."""

import math
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from spark_cas.core.errors import LogNotFoundError, StorageError
from spark_cas.log import timing
from spark_cas.log.deadline import ConfirmingRead, Wait
from spark_cas.log.kafka.client.client_errors import (
    TIMED_OUT,
    UNANSWERED,
    UNREACHABLE,
    Right,
    passes,
    plain_error,
    reason_of,
    why_unreachable,
)
from spark_cas.log.kafka.client.own_threads import SafeAdminClient
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec

# ruff: noqa: SLF001 - librdkafka names its own errors with an underscore; they are public

_METADATA_SHARE = 0.3
"""The share of the request timeout for metadata. Leaders are requested before a request, and again after it fails."""

_CONFIRMING_SHARE = 0.5
"""The share of the request timeout that confirming reads take."""

_BACKSTOP_SHARE = 1.1
"""Each request has a shorter timeout of its own. The client does not always report that it is over."""

Answer = TypeVar("Answer")

_LOG_LEVEL = 6
"""The client's setting ``log_level`` (of syslog) with which it logs each connection that ends."""

_FAILED = re.compile(r"(?:\w+://)?(\S+?)/(?:bootstrap|\d+): (.*)$")
"""The text of a log line: the broker's address, and the failure."""

_PROTOCOL = "Set option kafka.security.protocol to the protocol of the brokers' listener."
_ADDRESS = "Check that the address is right, and that the brokers run there."
_MECHANISM = "Set option kafka.sasl.mechanism to one that the brokers have."

_CAUSES = (
    (r"not valid in current SASL state", KafkaError._AUTHENTICATION, "{} does not use SASL", _PROTOCOL),
    (r"Unsupported SASL mechanism", KafkaError._AUTHENTICATION, "{} does not have this SASL mechanism", _MECHANISM),
    (r"SASL authentication error", KafkaError._AUTHENTICATION, "{} refused the credentials", None),
    (r"certificate|alert", KafkaError._SSL, "TLS with {} failed because of a certificate", None),
    (r"Failed to resolve", KafkaError._RESOLVE, "the host name in {} is unknown here", None),
    (r"Connection refused", None, "connection refused by {}", _ADDRESS),
    (r"PLAINTEXT broker|in state SSL_HANDSHAKE", None, "{} ended the TLS handshake, as without TLS", _PROTOCOL),
    (
        r"Disconnected.* in state (?:APIVERSION_QUERY|AUTH_\w+)",
        None,
        "{} closed the connection at the first request, as with TLS or SASL",
        _PROTOCOL,
    ),
    (r"[Tt]imed out", None, "{} did not answer in time", None),
    (r"Connect to \S+ failed", None, "no connection to {}", None),
    (r"Disconnected", None, "{} closed the connection", None),
)
"""Texts of librdkafka 2.16, the most specific first: a code that only these causes have, the cause, its own fix."""

_SPECIFIC = {code for _, code, *_ in _CAUSES if code is not None}
_MOST_ADDRESSES = 4


class Troubles:
    """The failures that one client has recorded since the last answer."""

    def __init__(self) -> None:
        self.codes = set[int]()
        """Codes of the error callback."""
        self.silent = False
        """Whether a broker that was connected left a request unanswered. The client then closes the connection."""
        self._causes: dict[str, int] = {}
        """By address, the most specific cause: its index in `_CAUSES`."""

    def take(self, error: KafkaError) -> None:
        """Take an error, as the client's ``error_cb``. The log has its text as well."""
        self.codes.add(error.code())

    def log(self, _level: int, _form: str, *args: object) -> None:
        """Take a line, as `logging.Logger.log` would: facility, client, text."""
        if not args:
            return
        self.silent |= args[0] == "REQTMOUT"
        if args[0] in ("FAIL", "REQTMOUT"):
            self._read(str(args[-1]).partition("]: ")[2])

    def clear(self) -> None:
        """Forget all failures, because a broker answered."""
        self.codes.clear()
        self._causes.clear()
        self.silent = False

    def explain(self, code: int, addresses: str) -> tuple[str, str]:
        """Return the cause of a failure with this code, and the fix.

        ``addresses`` are the configured ones: the cause names them if no text named the one that failed.
        """
        result = self._causes
        if code in _SPECIFIC and not any(_CAUSES[index][1] == code for index in result.values()):
            result = {}
        if not result:
            return f"{reason_of(code)} ({addresses})", UNREACHABLE[code]
        causes = [_CAUSES[index][2].format(address) for address, index in result.items()]
        left = len(causes) - _MOST_ADDRESSES
        more = [f"{left} more brokers failed"] if left > 0 else []
        fix = _CAUSES[min(result.values())][3] or UNREACHABLE[code]
        return "; ".join(causes[:_MOST_ADDRESSES] + more), fix

    def _read(self, text: str) -> None:
        result = _FAILED.match(text)
        if result is None:
            return
        for index, (pattern, *_) in enumerate(_CAUSES):
            if re.search(pattern, result[2]):
                self._causes[result[1]] = min(index, self._causes.get(result[1], index))
                return


class Admin:
    """A client for requests. A new one replaces it when it has no broker left to connect to.

    librdkafka reconnects after every error, even after rejected credentials, so each request ends as a timeout. The
    errors seen in the meantime are kept until a request succeeds or another client takes over.
    """

    def __init__(self, spec: KafkaSpec, settings: Mapping[str, Any]) -> None:
        self.request_seconds = spec.request_seconds
        """The timeout of one request."""
        self.patience_seconds = spec.patience_seconds
        """The retry timeout of a request, over all its attempts."""
        self.reached = spec.reached
        """Whether these brokers ever answered. If so, a failure to connect is considered transient."""
        self.known = set[str]()
        """Topics that were seen. A broker that does not know one has stale metadata, or it was deleted."""
        self.coordinated = False
        """Whether a check found that the brokers can coordinate transactions and groups."""
        self._topics: dict[str, tuple[float, str, int]] = {}
        self._topic = spec.topic
        self._addresses = spec.bootstrap_servers
        self._leaders: dict[str, tuple[float, frozenset[int]]] = {}
        self._settings = settings
        self._late_at = -math.inf
        self._begin()

    def _begin(self) -> None:
        # A separate object, because the client keeps its callbacks and would keep this object alive.
        self._troubles = Troubles()
        heard: dict[str, Any] = {"error_cb": self._troubles.take, "logger": self._troubles, "log_level": _LOG_LEVEL}
        self.client = SafeAdminClient({**self._settings, **heard})
        """The current client."""
        self._leaders.clear()

    def serve(self, spec: KafkaSpec) -> None:
        """Use this client for another topic of the same brokers."""
        self.reached |= spec.reached
        self._topic = spec.topic
        self._forget_troubles()

    def ask_brokers(self, most_seconds: float) -> None:
        """Request the metadata of the brokers. If that fails too, replace the client.

        A broker that has just restarted reports no brokers, not even itself. librdkafka (2.16) accepts that answer,
        and does not refresh it for minutes on an open connection. It can also drop the last broker it knows, and then
        never reconnects (decision 0011).
        """
        try:
            with self.noticing_late():
                self.client.list_topics(self._topic, min(most_seconds, _METADATA_SHARE * self.request_seconds))
        except KafkaException:
            unanswered = True
        else:
            unanswered = False
        # After the error handler has ended, so that the error does not keep the old client alive.
        if unanswered:
            self._begin()

    def cache_topic(self, requested_at: float, topic: str, topic_id: str, partitions: int) -> None:
        self._topics[topic] = requested_at, topic_id, partitions

    def cached_topic(self, topic: str) -> tuple[str, int] | None:
        """Return the id of a topic and its partition count, if they were requested within `Timing.fresh_age`.

        Use it only if a later request verifies the result. With many partitions the request takes long.
        """
        requested_at, topic_id, partitions = self._topics.get(topic, (-math.inf, "", 0))
        return (topic_id, partitions) if time.monotonic() - requested_at < timing.current().fresh_age else None

    def waited_recently(self) -> bool:
        """Return whether a recent request was answered late or not at all.

        Then a broker that stalled may just have resumed, and may not know that it was demoted. The next request is
        sent within half of this time, unless its own answer is late too.
        """
        return time.monotonic() - self._late_at < 2 * timing.current().metadata_lag

    def knows_leaders(self, topic: str, partitions: Collection[int]) -> bool:
        """Return whether the client knows the leaders of these partitions. If its metadata is old, request it first.

        Without a known leader, librdkafka (2.16) requests the metadata itself when it reads offsets. That takes
        longer, and a reply at a bad moment can crash the process (decision 0011).
        """
        since, known = self._leaders.get(topic, (-math.inf, frozenset[int]()))
        if time.monotonic() - since > timing.current().cached_age or not known.issuperset(partitions):
            self.ask_leaders(topic)
        return self._leaders[topic][1].issuperset(partitions)

    def ask_leaders(self, topic: str) -> bool:
        """Request the leaders of the partitions of a topic, and return whether a broker answered.

        Until then the client uses the leaders it knew before.
        """
        self.forget_leaders(topic)
        try:
            with self.noticing_late():
                result = self.client.list_topics(topic, _METADATA_SHARE * self.request_seconds)
        except KafkaException:
            return False
        partitions = result.topics[topic].partitions
        if partitions:
            self.known.add(topic)
        led = frozenset(number for number, partition in partitions.items() if partition.leader >= 0)
        self._leaders[topic] = time.monotonic(), led
        return True

    def forget_leaders(self, topic: str) -> None:
        """Have the next request fetch the leaders of the topic first."""
        self._leaders[topic] = -math.inf, frozenset()

    def answer(self, requested: "Future[Answer]") -> Answer:
        """Wait for the answer to a request, and return it.

        Raises:
            KafkaException: The request failed. If it timed out, the code is the cause that kept the client from its
                brokers.
            OptionError: The request failed, and so did the function that returns the tokens of the client.
        """
        failure = KafkaError(KafkaError._TIMED_OUT)
        try:
            with self.noticing_late():
                answer = requested.result(_BACKSTOP_SHARE * self.request_seconds)
        except KafkaException as error:
            failure = error.args[0]
        except TimeoutError:
            pass
        else:
            self._forget_troubles()
            self.reached = True
            return answer
        finally:
            # The future keeps its error, and the error keeps this frame: together they would keep the client alive.
            del requested
        self.client.poll(0)
        self.require_token()
        if failure.code() in TIMED_OUT:
            message = why_unreachable(self._troubles.codes)
            # librdkafka reports a connection that it closed for a timeout as if the broker had closed it. A refusal
            # is reported as one.
            hidden = KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE
            silent = self._troubles.silent and message in hidden
            failure = KafkaError(KafkaError._TIMED_OUT if silent else message)
        raise KafkaException(failure)

    def require_token(self, *, refused: bool = False) -> None:
        """Raise OptionError if the clients get no token: see `Tokens.check`. ``refused``: brokers refused theirs."""
        if (tokens := self._settings.get("oauth_cb")) is not None:
            tokens.check(refused=refused)

    def reason_of(self, code: int) -> str:
        """Return the reason for a failed request, with the address if no broker was reachable."""
        if code not in UNREACHABLE:
            return reason_of(code)
        self.client.poll(0)
        return self._troubles.explain(code, self._addresses)[0]

    @contextmanager
    def noticing_late(self) -> Iterator[None]:
        """Record a late answer if the enclosed request takes long or times out."""
        requested_at = time.monotonic()
        try:
            yield
        finally:
            now = time.monotonic()
            if now - requested_at >= timing.current().metadata_lag:
                self._late_at = now

    def confirmed(
        self,
        read: Callable[[], Answer],
        doubt: Callable[[Answer], str],
        doing: str,
        *,
        topic: str = "",
        seconds: float | None = None,
    ) -> Answer:
        """Return the result of ``read``. While it is doubtful, read again, for some time.

        A result is doubtful if it contradicts an earlier one. A demoted leader or coordinator, or a broker with stale
        metadata, does not know that its answer is old. ``doubt`` returns the reason, or an empty text.

        If leaders of a ``topic`` answer, each further read requests its current leaders first. By default the time
        is a share of the request timeout.
        """
        seconds = _CONFIRMING_SHARE * self.request_seconds if seconds is None else seconds
        wait: ConfirmingRead | None = None
        while reason := doubt(result := read()):
            wait = wait or ConfirmingRead(seconds, doing)
            if not wait.again(reason):
                break
            if topic:
                self.forget_leaders(topic)
        return result

    def read_confirmed(self, topic: str, read: Callable[[], Answer], *, made: bool = False) -> Answer:
        """Return the result of ``read``, and retry if a broker with stale metadata does not know the topic.

        Metadata is probably stale if this client has already seen the topic, or if the caller knows it was ``made``.
        A broker that answered late may have stalled since before the topic was created. Raises LogNotFoundError.
        """
        wait: ConfirmingRead | None = None
        while True:
            try:
                result = read()
            except LogNotFoundError:
                if wait is None and (topic in self.known or made or self.waited_recently()):
                    # A misspelled topic name is reported after the shorter time.
                    known_seconds = _CONFIRMING_SHARE * self.request_seconds
                    seconds = known_seconds if topic in self.known else timing.current().metadata_lag
                    wait = ConfirmingRead(seconds, f"looking for topic {topic}")
                if wait is None or not wait.again("a broker does not know it"):
                    # Drop everything cached about the topic.
                    self.known.discard(topic)
                    self._topics.pop(topic, None)
                    raise
            else:
                self.known.add(topic)
                return result

    def ask(self, question: Callable[[], Answer], doing: str, *rights: Right) -> Answer:
        """Send a request and return its answer. Retry transient errors until the retry timeout of the client.

        ``doing`` is the beginning of an error text, which names the ``rights`` if the broker denies the request.

        Raises:
            LogNotFoundError: The topic does not exist.
            OptionError: As `require_token`.
            StorageError: The error is permanent, or the retry timeout is over.
        """
        wait = Wait(self.patience_seconds, doing)
        while True:
            try:
                return question()
            except KafkaException as error:
                code = error.args[0].code()
                if not passes(code, reached=self.reached) or not wait.again(self.reason_of(code)):
                    self.require_token(refused=code == KafkaError._AUTHENTICATION)
                    if code in UNREACHABLE:
                        self.client.poll(0)
                        cause, fix = self._troubles.explain(code, self._addresses)
                        topic = f" of topic {self._topic}" if self._topic else ""
                        raise StorageError(f"no answer from the brokers{topic}: {cause}. {fix}") from None
                    raise plain_error(error, doing, *rights) from None
                # No broker closed the connection or denied access, so it has stalled, or a firewall drops packets.
                self.reached |= code == KafkaError._TIMED_OUT
            # Send this after the error handler has ended. confluent-kafka (2.16) never frees the error that
            # `list_topics` raises. That error would keep the handled error alive, and through its frames the client.
            if code in UNANSWERED:
                self.ask_brokers(wait.left)

    def _forget_troubles(self) -> None:
        self.client.poll(0)
        self._troubles.clear()
