"""The layouts of a topic: the expansions and the partitioner in the registry, and the partition count of the brokers.

The layout epoch of a topic is its partition count, which only ever rises. An expansion has two entries under the id
of the topic. The first records that it began, and makes every plan of an earlier epoch void. The second records that
it is finished. A third entry under that id names the partitioner. The first plan whose write names a partitioner
records it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from confluent_kafka import TopicPartition

from spark_cas.core.expansion import Expansion, Intent, Layouts
from spark_cas.core.outcome import LayoutChanged
from spark_cas.core.partitioner import Partitioner, known_partitioner
from spark_cas.core.plan import Layout, Plan
from spark_cas.core.recorded_fields import from_json, in_format, to_json
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.client_errors import NotPermittedError, lacking, on_topic
from spark_cas.log.kafka.offsets import end_offsets
from spark_cas.log.kafka.registry.kafka_registry import Registry
from spark_cas.log.kafka.topic.topic_settings import describe, require_planned

_Value = TypeVar("_Value")


@dataclass(slots=True)
class TopicLayouts:
    """The layouts of one topic. Each method requests them unless its docstring differs. The newest one is kept."""

    admin: Admin
    registry: Registry
    topic: str
    _newest: Layout | None = field(default=None, init=False)

    def layout(self, *, made: bool = True) -> Layout:
        """Return the newest layout that a broker ever reported. Partitions are never removed.

        Raises LogNotFoundError, without a retry unless the topic was ``made`` or seen before, and StorageError.
        """
        described = describe(self.admin, self.topic, made=made)
        result, newest = _layout(str(described.topic_id), len(described.partitions)), self._newest
        if newest is None or newest.log_id != result.log_id or newest.epoch < result.epoch:
            self._newest = newest = result
        return newest

    def await_partitions(self, partitions: Sequence[int], *, recent: bool = False) -> Layout:
        """Return the layout, and check that it has these partitions, which another broker may have reported.

        With ``recent``, use a description of the last second if it has them. See `Admin.cached_topic`. Raises
        ValueError if a partition does not exist, and as `layout`.
        """

        def doubt(layout: Layout) -> str:
            return "" if max(partitions, default=0) < layout.partitions else "a broker knows of fewer"

        cached = self.admin.cached_topic(self.topic) if recent else None
        if cached is not None and not doubt(_layout(*cached)):
            layout = _layout(*cached)
        else:
            self.admin.known.add(self.topic)
            layout = self.admin.confirmed(self.layout, doubt, f"looking for the partitions of topic {self.topic}")
        for partition in partitions:
            layout.require(partition)
        return layout

    def knows(self, partition: int) -> bool:
        return self._newest is not None and 0 <= partition < self._newest.partitions

    def changed(self, plan: Plan) -> LayoutChanged | None:
        """Return a layout change that makes a plan void, if one was recorded before this call.

        A broker may not know of added partitions yet, but the registry records each expansion. If the topic was
        described within the last second, its id is not requested again: an append verifies it before the commit.
        Raises LogNotSharedError if the topic was replaced, LogNotFoundError, FormatError, StorageError.
        """
        log_id, epoch = plan.log_id, plan.layout_epoch
        as_planned = self.admin.cached_topic(self.topic) == (log_id, epoch)
        counted = None if as_planned else self._changed_as_counted(log_id, epoch)
        return counted or self._changed_as_recorded(log_id, epoch)

    def changed_since_read(self, layout: Layout) -> LayoutChanged | None:
        """Return the same for a layout, without requiring permission to read the registry.

        Without that permission, only the partition count of the brokers counts. Raises as `changed`.
        """
        counted = self._changed_as_counted(layout.log_id, layout.epoch)
        try:
            return counted or self._changed_as_recorded(layout.log_id, layout.epoch)
        except NotPermittedError:
            return None

    def all(self, known_epoch: int | None) -> Layouts:
        layout = self.layout()
        try:
            intents, done, partitioner = self._recorded(layout.log_id)
        except NotPermittedError:
            if known_epoch is None:
                right = on_topic("Read", self.registry.spec.layouts_topic)
                raise NotPermittedError(
                    f"looking for partitions that were added to topic {self.topic} earlier: {lacking(right)}. "
                    f"Then read again."
                ) from None
            intents, done, partitioner = [], [], None
        pending = _pending(intents, done)
        if done and done[-1].epoch > layout.epoch:
            # The registry is authoritative.
            layout = self._newest = _layout(layout.log_id, done[-1].epoch)
        if pending is not None and pending.before < layout.partitions:
            layout = _layout(layout.log_id, pending.before)
        unrecorded = [] if known_epoch is None else _unrecorded_expansions(known_epoch, done, layout.partitions)
        for before, after in unrecorded:
            ats = [TopicPartition(self.topic, each) for each in range(before)]
            done.append(Expansion(after, after, tuple(end_offsets.high_watermarks(self.admin, ats))))
        return Layouts(layout, tuple(sorted(done, key=lambda each: each.epoch)), pending, partitioner)

    def begin(self, layout: Layout, partitions: int) -> Intent:
        intent = Intent(partitions, partitions, layout.partitions)
        key = self._key("expansion", layout.log_id, intent.before)
        return _parsed(Intent, self.registry.put(key, to_json(intent)))

    def finish(self, log_id: str, expansion: Expansion) -> None:
        self.registry.put(self._key("layout", log_id, expansion.epoch), to_json(expansion))

    def record_partitioner(self, partitioner: Partitioner) -> Partitioner:
        key = self._key("partitioner", self.layout().log_id)
        return _partitioner(self.registry.put(key, json.dumps({"partitioner": partitioner})))

    def _changed_as_counted(self, log_id: str, epoch: int) -> LayoutChanged | None:
        count = len(require_planned(self.admin, self.topic, log_id, epoch).partitions)
        return LayoutChanged(epoch, count) if count != epoch else None

    def _changed_as_recorded(self, log_id: str, epoch: int) -> LayoutChanged | None:
        intents, done, _ = self._recorded(log_id)
        pending = _pending(intents, done)
        if pending is not None:
            return LayoutChanged(epoch, pending.epoch)
        newest = max((each.epoch for each in intents), default=0)
        return LayoutChanged(epoch, newest) if newest > epoch else None

    def _recorded(self, log_id: str) -> tuple[list[Intent], list[Expansion], Partitioner | None]:
        """Return the begun expansions, the finished ones (oldest first), and the partitioner if it is recorded."""
        key = self._key("partitioner", log_id)
        entries = self.registry.of(key)
        begun = [_parsed(Intent, text) for text in entries.texts(self._key("expansion", log_id, ""))]
        done = [_parsed(Expansion, text) for text in entries.texts(self._key("layout", log_id, ""))]
        named = entries.text(key)
        return begun, sorted(done, key=lambda each: each.epoch), None if named is None else _partitioner(named)

    def _key(self, kind: str, *names: object) -> str:
        return "/".join(map(str, (self.topic, kind, *names)))


def _layout(log_id: str, partitions: int) -> Layout:
    return Layout(log_id, epoch=partitions, partitions=partitions)


def _pending(intents: list[Intent], done: list[Expansion]) -> Intent | None:
    epochs = {each.epoch for each in done}
    return next((each for each in intents if each.epoch not in epochs), None)


def _unrecorded_expansions(known: int, done: list[Expansion], partitions: int) -> list[tuple[int, int]]:
    """Return the partition counts before and after each expansion since a known count that is not in the registry."""
    gaps, at = [], known
    for each in done:
        if each.before > at:
            gaps.append((at, each.before))
        at = max(at, each.partitions)
    return [*gaps, (at, partitions)] if at < partitions else gaps


def _parsed(kind: type[_Value], text: str) -> _Value:
    with in_format("an expansion in the registry topic"):
        return from_json(kind, text)


def _partitioner(text: str) -> Partitioner:
    with in_format("the partitioner of a topic in the registry topic"):
        return known_partitioner(json.loads(text)["partitioner"])
