"""Who asks the brokers, and knows why there is no answer: librdkafka tells that to a callback and its log only."""

import math
import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from spark_cas.core.errors import StorageError
from spark_cas.log.kafka.client.codes import TIMED_OUT, UNREACHABLE, reason_of, why_unreachable
from spark_cas.log.kafka.client.troubles import LOG_LEVEL, Troubles
from spark_cas.log.kafka.spec import KafkaSpec

_METADATA_SHARE = 0.3
"""Of the time of a question: the leaders are asked for before it, and again after it."""
_LEADERS_HOLD_SECONDS = 60.0
"""Well below ``metadata.max.age.ms``, after which the client forgets them."""

_BACKSTOP_SHARE = 1.1
"""Every question has its own, shorter time; the client does not always say that it is over."""

_JUST_NOW_SECONDS = 1.0
_LATE_SECONDS = 1.0
"""A broker that stands still for less is not deposed for it."""
_LATELY_SECONDS = 2 * _LATE_SECONDS
"""The next question was asked within half of that, or its answer was late as well."""

Answer = TypeVar("Answer")


class Admin:
    """A client for questions, and another one once it has nobody left to ask.

    librdkafka connects again and again whatever went wrong, refused credentials included: a question then ends as
    timed out. What went wrong meanwhile is remembered until a question is answered, or another client asks.
    """

    def __init__(self, spec: KafkaSpec, settings: Mapping[str, Any]) -> None:
        self.request_seconds = spec.request_seconds
        """How long one question is waited for."""
        self.patience_seconds = spec.patience_seconds
        """How long it is asked again."""
        self.met = spec.met
        """Whether these brokers ever answered: then a connection that does not come about is one that comes back."""
        self.seen = set[str]()
        """Topics that somebody saw: a broker that does not know one lags behind, or it is gone."""
        self.coordinated = False
        """Whether a check found that the brokers can have coordinators of transactions and groups."""
        self._told: dict[str, tuple[float, str, int]] = {}
        self._topic = spec.topic
        self._addresses = spec.bootstrap_servers
        self._leaders: dict[str, tuple[float, frozenset[int]]] = {}
        self._settings = settings
        self._late_at = -math.inf
        self._begin()

    def _begin(self) -> None:
        # An object of its own: the client holds its callbacks, and would hold this object.
        self._troubles = Troubles()
        heard: dict[str, Any] = {
            "error_cb": self._troubles.take,
            "logger": self._troubles,
            "log_level": LOG_LEVEL,
        }
        self.client = AdminClient({**self._settings, **heard})
        """The client of the present question."""
        self._leaders.clear()

    def serve(self, spec: KafkaSpec) -> None:
        """From now on ask for another topic of the same brokers."""
        self.met |= spec.met
        self._topic = spec.topic
        self._forget_troubles()

    def ask_brokers(self, most_seconds: float) -> None:
        """Ask who the brokers are. When nobody answers that either, another client asks from now on.

        A broker that has just come back knows of none, itself included. librdkafka (2.16) takes that for an answer,
        and on a connection that lasts it does not ask again for minutes; or it lets go of the last broker that it
        knew, and has nobody left to ask, for good (decision 0022).
        """
        try:
            with self.noticing_late():
                self.client.list_topics(self._topic, min(most_seconds, _METADATA_SHARE * self.request_seconds))
        except KafkaException:
            unanswered = True
        else:
            unanswered = False
        # Not while the error is handled, see `ask`.
        if unanswered:
            self._begin()

    def was_told(self, asked_at: float, topic: str, topic_id: str, partitions: int) -> None:
        """Remember what brokers told of a topic that were asked at that time."""
        self._told[topic] = asked_at, topic_id, partitions

    def missed(self, topic: str) -> None:
        """A topic is not there, whatever was seen or told of it."""
        self.seen.discard(topic)
        self._told.pop(topic, None)

    def told_just_now(self, topic: str) -> tuple[str, int] | None:
        """The id of a topic and its partitions, where the brokers were asked a moment ago.

        Good for who asks anew before anything rests on it: with many partitions the answer takes long.
        """
        asked_at, topic_id, partitions = self._told.get(topic, (-math.inf, "", 0))
        return (topic_id, partitions) if time.monotonic() - asked_at < _JUST_NOW_SECONDS else None

    def waited_lately(self) -> bool:
        """Whether an answer was long on its way, or did not come, so lately that who gave it may go on just now."""
        return time.monotonic() - self._late_at < _LATELY_SECONDS

    def knows_leaders(self, topic: str, partitions: Collection[int]) -> bool:
        """Whether the client knows who leads these partitions; it asks when it has not lately.

        Asked for offsets without knowing it, librdkafka (2.16) asks by itself: that takes longer, and a reply that
        comes at a bad moment can end the process (decision 0018).
        """
        since, known = self._leaders.get(topic, (-math.inf, frozenset[int]()))
        if time.monotonic() - since > _LEADERS_HOLD_SECONDS or not known.issuperset(partitions):
            self.ask_leaders(topic)
        return self._leaders[topic][1].issuperset(partitions)

    def ask_leaders(self, topic: str) -> bool:
        """Ask who leads the partitions of a topic: till then the client keeps to whom it once learnt of, dead or not.

        False when nobody answered.
        """
        self.forget_leaders(topic)
        try:
            with self.noticing_late():
                found = self.client.list_topics(topic, _METADATA_SHARE * self.request_seconds)
        except KafkaException:
            return False
        partitions = found.topics[topic].partitions
        if partitions:
            self.seen.add(topic)
        led = frozenset(number for number, partition in partitions.items() if partition.leader >= 0)
        self._leaders[topic] = time.monotonic(), led
        return True

    def forget_leaders(self, topic: str) -> None:
        """Who leads the partitions of a topic is to be asked before the next question."""
        self._leaders[topic] = -math.inf, frozenset()

    def answer(self, asked: "Future[Answer]") -> Answer:
        """Wait for the answer to a question.

        Raises KafkaException. Its code is what keeps the client from its brokers, where nothing but that is known.
        """
        failure = KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001 - librdkafka's own errors are named so
        try:
            with self.noticing_late():
                answer = asked.result(_BACKSTOP_SHARE * self.request_seconds)
        except KafkaException as error:
            failure = error.args[0]
        except TimeoutError:
            pass
        else:
            self._forget_troubles()
            self.met = True
            return answer
        finally:
            # The question keeps its error, and that this frame: held by it, the client would live on.
            del asked
        self.client.poll(0)
        if failure.code() in TIMED_OUT:
            told = why_unreachable(self._troubles.codes)
            # Given up for its silence a connection looks as if the broker had hung up. A refusal stays one.
            hidden = KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE  # noqa: SLF001 - as above
            silent = self._troubles.silent and told in hidden
            failure = KafkaError(KafkaError._TIMED_OUT if silent else told)  # noqa: SLF001 - as above
        raise KafkaException(failure)

    def reason_of(self, code: int) -> str:
        """Return the reason for a failure of a question, with the address if no broker could be reached."""
        if code not in UNREACHABLE:
            return reason_of(code)
        self.client.poll(0)
        return self._troubles.explain(code, self._addresses)[0]

    def unreachable(self, code: int) -> StorageError:
        """Return the error of a question that no broker answered, with a code of `UNREACHABLE`."""
        self.client.poll(0)
        cause, fix = self._troubles.explain(code, self._addresses)
        topic = f" of topic {self._topic}" if self._topic else ""
        return StorageError(f"no answer from the brokers{topic}: {cause}. {fix}")

    @contextmanager
    def noticing_late(self) -> Iterator[None]:
        """Inside, an answer is waited for, which may not come."""
        asked_at = time.monotonic()
        try:
            yield
        finally:
            now = time.monotonic()
            if now - asked_at >= _LATE_SECONDS:
                self._late_at = now

    def _forget_troubles(self) -> None:
        self.client.poll(0)
        self._troubles.clear()
