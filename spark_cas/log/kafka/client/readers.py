"""Consumers that are kept between reads: to open one takes longer than to read some records."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer

from spark_cas.log.kafka.client.clients import reader
from spark_cas.log.kafka.spec import KafkaSpec

_MOST_AT_REST = 4
"""From one log to the next, beside those of the registry."""


class Readers:
    """Those of one set of clients. Each read has one to itself while it lasts."""

    def __init__(self, spec: KafkaSpec) -> None:
        self.spec = spec
        self._ids: dict[str, str] = {}
        """Of topics, as the present log knows them."""
        self._at_rest: dict[tuple[str, str, bool], Consumer] = {}
        """By topic, its id, and whether they scan; whichever was used last at the end.

        The client asks for the leaders of a topic that is new to it a second after it is assigned.
        """
        self._closed = False

    def identify(self, topic: str, log_id: str) -> None:
        """The topic of a name is the one with this id: from now on consumers of just that one serve.

        Of a topic that was recreated meanwhile the client (librdkafka 2.16, its issue 4898) believes an old leader.
        """
        self._ids[topic] = log_id

    @contextmanager
    def taken(
        self, topic: str, *, scanning: bool, statistics: Callable[[str], None] | None = None
    ) -> Iterator[Consumer]:
        """Borrow a consumer without an assignment. If its read fails or ends early, the consumer is closed.

        A consumer with ``statistics`` is new, and closed afterwards: statistics pile up in a client that is not
        polled.
        """
        key = topic, self._ids.get(topic, ""), scanning
        pooled = None if statistics is not None else self._at_rest.pop(key, None)
        consumer = pooled or reader(self.spec, scanning=scanning, statistics=statistics)
        kept = None
        try:
            yield consumer
            consumer.unassign()
            # Lets go of what it had fetched ahead, up to 64 MiB.
            consumer.poll(0)
            if not self._closed and statistics is None:
                kept = self._at_rest.setdefault(key, consumer)
        finally:
            if kept is not consumer:
                consumer.close()

    def rest(self, *topics: str) -> None:
        """Keep those of these topics for the next log, and the last few of identified ones."""
        self._ids.clear()
        others = [each for each in self._at_rest if each[0] not in topics]
        identified = [each for each in others if each[1]]
        for key in {*others} - {*identified[-_MOST_AT_REST:]}:
            self._at_rest.pop(key).close()

    def close(self) -> None:
        """Close those at rest, and the others once they are."""
        self._closed = True
        while self._at_rest:
            self._at_rest.popitem()[1].close()
