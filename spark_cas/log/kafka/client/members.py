"""Consumers that each name a group and never join it: those that were asked for last stay open."""

import time
from collections import OrderedDict
from functools import partial
from itertools import count

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from spark_cas.log.kafka.client.clients import group_member
from spark_cas.log.kafka.client.codes import NOT_FOUND
from spark_cas.log.kafka.client.rights import NOT_PERMITTED
from spark_cas.log.kafka.spec import KafkaSpec

_MOST_OPEN = 6
"""The ledgers of a few jobs, and the grants."""
_PAUSE_SECONDS = 0.002


class Members:
    """Those of one set of clients."""

    def __init__(self, spec: KafkaSpec) -> None:
        self.spec = spec
        self._open: OrderedDict[str, Consumer] = OrderedDict()
        self._numbers = count(1)
        self._noted: dict[int, KafkaError | None] = {}
        """What became of notes, by number, until somebody has asked."""

    def of(self, group: str) -> Consumer:
        """The consumer of a group, good until some others were asked for."""
        if group not in self._open:
            self._open[group] = group_member(self.spec, group, partial(_note, self.spec.registry_topic, self._noted))
        self._open.move_to_end(group)
        while len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)[1].close()
        return self._open[group]

    def prove(self, group: str, timeout_seconds: float) -> None:
        """Have the coordinator of a group note something that nobody reads, as one that was deposed cannot.

        It would tell what was committed up to then (Kafka 4.1): a read has no epoch. Raises KafkaException.
        """
        member, number = self.of(group), next(self._numbers)
        # An offset of a topic that every writer may read, and that has no entries of jobs.
        member.commit(offsets=[TopicPartition(self.spec.registry_topic, 0, number)], asynchronous=True)
        deadline = time.monotonic() + timeout_seconds
        while number not in self._noted:
            message = member.poll(_PAUSE_SECONDS)
            error = None if message is None else message.error()
            if error is not None and error.code() in NOT_PERMITTED:
                raise KafkaException(error)
            if time.monotonic() >= deadline:
                raise KafkaException(_timed_out())
        failed = self._noted.pop(number)
        if failed is not None and failed.code() in NOT_FOUND:
            # The topic was made a moment ago: the broker has not heard of it yet, and will.
            raise KafkaException(_timed_out())
        if failed is not None:
            raise KafkaException(failed)

    def forget_events(self) -> None:
        """Take what they were told while nobody asked, so that it explains nothing that is asked from now on."""
        for member in self._open.values():
            while member.poll(0) is not None:
                pass
        self._noted.clear()

    def close(self) -> None:
        """Let go of all of them."""
        while self._open:
            self._open.popitem()[1].close()


def _timed_out() -> KafkaError:
    return KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001 - librdkafka names it so


def _note(
    topic: str, noted: dict[int, KafkaError | None], error: KafkaError | None, offsets: list[TopicPartition]
) -> None:
    for each in offsets:
        if each.topic == topic:
            noted[each.offset] = error or each.error
