"""Consumers that are kept between reads: to open one takes longer than to read some records."""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer

from spark_cas.log.kafka.client.clients import reader
from spark_cas.log.kafka.spec import KafkaSpec


class Readers:
    """Those of one set of clients. Each read has one to itself while it lasts."""

    def __init__(self, spec: KafkaSpec) -> None:
        self.spec = spec
        self._at_rest: dict[tuple[str, int], Consumer] = {}
        """By topic, and how long their fetches wait in milliseconds.

        The client asks for the leaders of a topic that is new to it a second after it is assigned.
        """
        self._closed = False

    @contextmanager
    def taken(self, topic: str, fetch_wait_ms: int) -> Iterator[Consumer]:
        """A consumer that nothing is assigned to. One whose read failed, or was left early, is not used again."""
        consumer = self._at_rest.pop((topic, fetch_wait_ms), None) or reader(self.spec, fetch_wait_ms=fetch_wait_ms)
        kept = None
        try:
            yield consumer
            consumer.unassign()
            if not self._closed:
                kept = self._at_rest.setdefault((topic, fetch_wait_ms), consumer)
        finally:
            if kept is not consumer:
                consumer.close()

    def keep_of(self, *topics: str) -> None:
        """Close those at rest, but for these topics.

        Of a topic that was recreated meanwhile the client (librdkafka 2.16, its issue 4898) believes an old leader.
        """
        for key in [each for each in self._at_rest if each[0] not in topics]:
            self._at_rest.pop(key).close()

    def close(self) -> None:
        """Close those at rest, and the others once they are."""
        self._closed = True
        self.keep_of()
