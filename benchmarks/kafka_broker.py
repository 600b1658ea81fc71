"""A broker for the comparisons, and topics that come and go."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, TopicMetadata

from benchmarks.sizes import PARTITIONS
from spark_cas.testing.kafka_broker import KafkaBroker

CONF = Path(__file__).parents[1] / "conf" / "kafka"
_SECONDS = 60
_PAUSE_SECONDS = 0.02


class Topics:
    """Makes topics on one broker, and removes the one before, so that the disk holds one at a time."""

    def __init__(self, address: str, replication: int = 1) -> None:
        self.address = address
        self._replication = replication
        self._admin = AdminClient({"bootstrap.servers": address})
        self._looker = Consumer({"bootstrap.servers": address, "group.id": "none, for it only looks"})
        self._current: str | None = None

    def fresh(self, partitions: int = PARTITIONS) -> str:
        """The name of a new topic."""
        if self._current is not None:
            self._admin.delete_topics([self._current])[self._current].result(_SECONDS)
        self._current = self.kept(partitions)
        return self._current

    def kept(self, partitions: int = PARTITIONS) -> str:
        """The name of a new topic that stays."""
        name = f"benchmark-{os.urandom(6).hex()}"
        self._admin.create_topics([NewTopic(name, partitions, self._replication)])[name].result(_SECONDS)
        # Brokers know it a little later.
        while not _has_leaders(self._admin.list_topics(name, _SECONDS).topics[name], partitions):
            time.sleep(_PAUSE_SECONDS)
        return name

    def records(self, topic: str, partitions: int = PARTITIONS) -> int:
        """About how many records are there, committed or not: markers are counted, too."""
        at = [TopicPartition(topic, each) for each in range(partitions)]
        try:
            return sum(int(self._looker.get_watermark_offsets(each, _SECONDS)[1]) for each in at)
        except KafkaException:  # a broker that learns only now that the topic is new
            return 0

    def options(self, topic: str, **more: str) -> dict[str, str]:
        """Spark's options, the same for both sides."""
        return {"kafka.bootstrap.servers": self.address, "topic": topic, **more}


def _has_leaders(topic: TopicMetadata, partitions: int) -> bool:
    return len(topic.partitions) == partitions and all(each.leader >= 0 for each in topic.partitions.values())


@contextmanager
def running_broker() -> Iterator[Topics]:
    """A broker of its own while this is entered. Deleted topics free their disk at once."""
    with KafkaBroker(CONF, settings={"log.segment.delete.delay.ms": "1000"}, measured=True) as broker:
        yield Topics(broker.bootstrap)
