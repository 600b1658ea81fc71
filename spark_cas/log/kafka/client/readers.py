"""A pool of consumers, because opening one takes longer than reading some records."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer

from spark_cas.log.kafka.client.clients import reader
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec

_MOST_IDLE = 4
"""The most idle consumers that the next log takes over, besides those of the registry."""


class Readers:
    """The consumers of one set of clients. Each read has exclusive use of one."""

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
        for key in {*others} - {*identified[-_MOST_IDLE:]}:
            self._idle.pop(key).close()

    def close(self) -> None:
        """Close the idle consumers, and each borrowed one when its read ends."""
        self._closed = True
        while self._idle:
            self._idle.popitem()[1].close()
