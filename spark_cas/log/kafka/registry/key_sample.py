"""Sample the newest keys of a topic, to check that the partitioner of a write fits the existing records.

Other producers may have filled a topic with another partitioner: librdkafka's default is CRC32, the Java client's is
murmur2. A write with the wrong one puts new records of a key into other partitions than the existing ones.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from spark_cas.core.errors import LogNotFoundError, StorageError
from spark_cas.core.expansion import Layouts, partitions_at
from spark_cas.core.partitioner import PARTITIONERS, Partitioner, Placement, partition_of_key
from spark_cas.log import timing
from spark_cas.log.deadline import within
from spark_cas.log.kafka.client.codes import PARTITION_EOF
from spark_cas.log.kafka.client.kept_clients import ClientSet
from spark_cas.log.kafka.offsets import end_offsets
from spark_cas.log.kafka.offsets.reading import offset_of
from spark_cas.log.kafka.registry.layouts import TopicLayouts

_NEWEST_OFFSETS = 16
"""How many offsets to read in each partition. Transaction markers use some of them."""
_MOST_PARTITIONS = 256
"""How many partitions to sample. If a topic has more, the sampled ones are evenly spaced."""
_POLL_RECORDS = 1_000
_OWN_KEYS = b"spark_cas."
"""The prefix of keys that this package writes to each partition, such as those of the key-value store."""


@dataclass(frozen=True, slots=True)
class SampledKey:
    """The key of an existing record, and the offset of that record."""

    key: bytes
    partition: int
    offset: int

    def is_elsewhere(self, partitioner: Partitioner, partitions: int) -> bool:
        """Whether the key is in another partition than a partitioner assigns."""
        return partition_of_key(self.key, partitions, partitioner) != self.partition


def keys_elsewhere(clients: ClientSet, layouts: TopicLayouts, placement: Placement) -> str:
    """Return a note on sampled keys that are in other partitions than a write assigns; empty if there are none.

    For a record from before an expansion, the partition count of that time applies. If the brokers do not answer,
    return no note, because the write itself reports that.
    """
    seconds = 2 * timing.current().best_effort  # the check uses the records read by then
    try:
        with within(seconds):
            partitions = layouts.await_partitions([], recent=True).partitions
            sample = _sample(clients, layouts.topic, partitions, seconds)
            if not any(each.is_elsewhere(placement.partitioner, partitions) for each in sample):
                return ""
            # Partitions may have been added. Without permission to read the registry, expansions are unknown.
            history = layouts.all(layouts.layout().partitions)
    except (StorageError, LogNotFoundError, KafkaException):
        return ""
    return _note(layouts.topic, sample, history, placement)


def _note(topic: str, sample: list[SampledKey], history: Layouts, placement: Placement) -> str:
    elsewhere = {each: _count_elsewhere(sample, history, each) for each in PARTITIONERS}
    own = placement.partitioner
    if not elsewhere[own]:
        return ""
    matching = [each for each in PARTITIONERS if not elsewhere[each]]
    if matching and history.partitioner is None:
        fix = f"they match partitioner={matching[0]}: set that option for route and the write"
    else:
        fix = (
            "no partitioner that the log can have matches all of them. Conditions of keys do not hold here: leave "
            "compare=key out, or assign the partitions yourself with route(by='partition')"
        )
    return (
        f"of {len(sample)} sampled keys of topic {topic}, {elsewhere[own]} are in other partitions than "
        f"partitioner={own} assigns, so new records of a key may get into another partition than the existing "
        f"ones; {fix}"
    )


def _count_elsewhere(sample: list[SampledKey], history: Layouts, partitioner: Partitioner) -> int:
    return sum(each.is_elsewhere(partitioner, partitions_at(history, each.partition, each.offset)) for each in sample)


def _sample(clients: ClientSet, topic: str, partitions: int, seconds: float) -> list[SampledKey]:
    """Fetch the newest records of partitions, and return their keys."""
    deadline = time.monotonic() + seconds
    step = -(-partitions // _MOST_PARTITIONS)
    ats = [TopicPartition(topic, each) for each in range(0, partitions, step)]
    bounds = end_offsets.all_stable_bounds(clients.admin, ats)
    starts = [
        TopicPartition(topic, at.partition, max(each.start_offset, each.end_offset - _NEWEST_OFFSETS))
        for at, each in zip(ats, bounds, strict=True)
        if each.end_offset > each.start_offset
    ]
    if not starts:
        return []
    with clients.readers.borrow(topic, scanning=True) as consumer:
        consumer.assign(starts)
        keys = _keys(consumer, len(starts), deadline)
        return [each for each in keys if not each.key.startswith(_OWN_KEYS)]


def _keys(consumer: Consumer, partitions: int, deadline: float) -> Iterator[SampledKey]:
    """Yield the keys that arrive before the deadline, until each partition was read to its end."""
    ended: set[int | None] = set()
    while len(ended) < partitions and (left := deadline - time.monotonic()) > 0:
        # A timeout of `consume` is for all of the records that it may return.
        first = consumer.poll(left)
        for message in [] if first is None else [first, *consumer.consume(_POLL_RECORDS, 0)]:
            error, key, partition = message.error(), message.key(), message.partition()
            if error is not None and error.code() == PARTITION_EOF:
                ended.add(partition)
            elif error is None and key is not None and partition is not None:
                yield SampledKey(key, partition, offset_of(message))
