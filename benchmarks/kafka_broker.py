"""A broker for the comparisons, and temporary topics."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, TopicMetadata

from benchmarks.sizes import PARTITIONS
from tools.kafka_broker import KafkaBroker

CONF = Path(__file__).parents[1] / "conf" / "kafka"
_SECONDS = 60
_PAUSE_SECONDS = 0.02


class Topics:
    """Create topics on one broker. `fresh` deletes its previous topic, so that only one uses the disk."""

    def __init__(self, address: str, replication: int = 1) -> None:
        self.address = address
        self._replication = replication
        self._admin = AdminClient({"bootstrap.servers": address})
        self._consumer = Consumer({"bootstrap.servers": address, "group.id": "unused"})
        self._current: str | None = None

    def fresh(self, partitions: int = PARTITIONS) -> str:
        """Create a topic, delete the previous one, and return the new name."""
        if self._current is not None:
            self._admin.delete_topics([self._current])[self._current].result(_SECONDS)
        self._current = self.kept(partitions)
        return self._current

    def kept(self, partitions: int = PARTITIONS) -> str:
        """Create a topic that is not deleted, and return its name."""
        name = f"benchmark-{os.urandom(6).hex()}"
        self._admin.create_topics([NewTopic(name, partitions, self._replication)])[name].result(_SECONDS)
        # The brokers report it with a delay.
        while not _has_leaders(self._admin.list_topics(name, _SECONDS).topics[name], partitions):
            time.sleep(_PAUSE_SECONDS)
        return name

    def records(self, topic: str, partitions: int = PARTITIONS) -> int:
        """Return the approximate number of records, committed or not. It includes transaction markers."""
        at = [TopicPartition(topic, each) for each in range(partitions)]
        try:
            return sum(int(self._consumer.get_watermark_offsets(each, _SECONDS)[1]) for each in at)
        except KafkaException:  # the broker has no metadata of the new topic yet
            return 0

    def options(self, topic: str, **more: str) -> dict[str, str]:
        """Return Spark's options, the same for both sides."""
        return {"kafka.bootstrap.servers": self.address, "topic": topic, **more}


def _has_leaders(topic: TopicMetadata, partitions: int) -> bool:
    return len(topic.partitions) == partitions and all(each.leader >= 0 for each in topic.partitions.values())


@contextmanager
def running_broker() -> Iterator[Topics]:
    """Run a broker within the context. Deleted topics free their disk space after a second."""
    with KafkaBroker(CONF, settings={"log.segment.delete.delay.ms": "1000"}, measured=True) as broker:
        yield Topics(broker.bootstrap)
