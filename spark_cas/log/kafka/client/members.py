"""Consumers that each name a group and never join it: those that were asked for last stay open."""

from collections import OrderedDict

from confluent_kafka import Consumer

from spark_cas.log.kafka.client.clients import group_member
from spark_cas.log.kafka.spec import KafkaSpec

_MOST_OPEN = 6
"""The ledgers of a few jobs, and the grants."""


class Members:
    """Those of one set of clients."""

    def __init__(self, spec: KafkaSpec) -> None:
        self.spec = spec
        self._open: OrderedDict[str, Consumer] = OrderedDict()

    def of(self, group: str) -> Consumer:
        """The consumer of a group, good until some others were asked for."""
        if group not in self._open:
            self._open[group] = group_member(self.spec, group)
        self._open.move_to_end(group)
        while len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)[1].close()
        return self._open[group]

    def forget_events(self) -> None:
        """Take what they were told while nobody asked, so that it explains nothing that is asked from now on."""
        for member in self._open.values():
            while member.poll(0) is not None:
                pass

    def close(self) -> None:
        """Let go of all of them."""
        while self._open:
            self._open.popitem()[1].close()
