"""The logs that a read takes, as the driver sees them."""

import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from spark_cas.core.errors import LogNotFoundError
from spark_cas.core.expansion import Expansion, Layouts
from spark_cas.core.offsets import Bounds
from spark_cas.log.backend import Backend
from spark_cas.log.open import TopicList, open_topics
from spark_cas.options.selection import Selection
from spark_cas.options.topic_partitions import TopicPartition
from spark_cas.spark.worker import open_here


@dataclass(frozen=True, slots=True)
class LogState:
    """What a log was found to be."""

    log_id: str
    layout_epoch: int
    bounds: dict[int, Bounds]
    """Of the partitions that are read."""
    expansions: tuple[Expansion, ...] = ()
    """How it came to its partitions, oldest first: `SelectedLogs.in_layouts` looks that up."""


Seen = dict[str, LogState]
"""The state of each log by its topic, sorted."""


def bounds_in(seen: Seen) -> dict[TopicPartition, Bounds]:
    """What each partition keeps, sorted."""
    return {TopicPartition(topic, each): bounds for topic, log in seen.items() for each, bounds in log.bounds.items()}


class SelectedLogs:
    """The logs of a selection. Each is opened when it is first needed, and closed with this."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._open: dict[str, Backend] = {}
        self._closing = ExitStack()
        self._topics: TopicList | None = None
        self._absent = set[str]()
        """Logs that were not there at the last look: it is not looked for them twice again each time."""
        self._layouts: dict[tuple[str, int], Layouts] = {}
        """What was found before, by topic and the epoch that was known."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._forget()
        self._closing.__exit__(kind, error, trace)

    def close(self) -> None:
        """Let go of all clients."""
        self.__exit__(None, None, None)

    def _forget(self) -> None:
        self._open.clear()
        self._topics = None
        self._layouts.clear()

    def names(self) -> tuple[str, ...]:
        """The topics that there are to read now, sorted. Raises StorageError when brokers have to be asked."""
        pattern = self._selection.pattern
        if pattern is None:
            return self._selection.topics
        self._topics = self._topics or open_topics(self._selection.spec)
        return tuple(name for name in self._topics.names() if re.fullmatch(pattern, name))

    def log(self, topic: str) -> Backend:
        """One of the logs, open."""
        if topic not in self._open:
            self._open[topic] = self._closing.enter_context(open_here(self._selection.spec_of(topic)))
        return self._open[topic]

    def look(self, *, waiting: bool, without_absent: bool = False) -> Seen:
        """All logs as they are now; ``waiting`` for the end of transactions that are open, or only what is decided.

        Who waits sees what is committed as a whole in all partitions that the log had by then, or in none.

        Raises LogNotFoundError when one is not there, unless it is to do ``without_absent``; OptionError when an
        assigned partition is not, TruncatedError when one is not the log that is meant, FormatError, StorageError.
        """
        seen: Seen = {}
        for topic in self.names():
            try:
                seen[topic] = self._state(topic, waiting=waiting)
            except LogNotFoundError:
                if not without_absent:
                    raise
                self._absent.add(topic)
            else:
                self._absent.discard(topic)
        return seen

    def in_layouts(self, seen: Seen, known_epochs: Mapping[str, int]) -> Seen:
        """The same for who follows the logs in the order of each key: with the expansions that led to this state.

        Partitions of an expansion that is not finished are not there yet. ``known_epochs`` are those that the logs
        had when they were read last, by topic. Raises LogNotFoundError, FormatError, StorageError.
        """
        return {
            topic: self._in_layouts(topic, state, known_epochs.get(topic, state.layout_epoch))
            for topic, state in seen.items()
        }

    def since(self, at: TopicPartition, timestamp_ms: int) -> int | None:
        """Return `Backend.offset_since` of one of the partitions."""
        return self.log(at.topic).offset_since(at.partition, timestamp_ms)

    def _state(self, topic: str, *, waiting: bool) -> LogState:
        log = self.log(topic)
        layout = log.layout_now() if topic in self._absent else log.layout()
        while True:
            self._selection.require_meant(topic, layout)
            partitions = self._selection.partitions_of(topic, layout)
            bounds = log.bounds_of(partitions, waiting=waiting)
            # Later than the ends, as for the view `offsets`; who comes back for the rest is told then.
            newest = log.layouts(layout.epoch).layout if waiting and not self._selection.assigned else layout
            if newest.epoch <= layout.epoch:
                return LogState(layout.log_id, layout.epoch, dict(zip(partitions, bounds, strict=True)))
            # What lies below the ends may go on in partitions that were added since, or that a broker missed.
            layout = newest

    def _in_layouts(self, topic: str, state: LogState, known_epoch: int) -> LogState:
        log = self.log(topic)
        found = self._layouts.get((topic, known_epoch))
        if found is None or _outdated(found, log):
            found = log.layouts(known_epoch)
            if found.pending is None:
                self._layouts[topic, known_epoch] = found
        layout = found.layout
        if layout.log_id != state.log_id:
            return state  # recreated since it was looked at: the next look finds that
        return LogState(
            state.log_id,
            min(state.layout_epoch, layout.epoch),
            {partition: bounds for partition, bounds in state.bounds.items() if partition < layout.partitions},
            found.expansions,
        )


def _outdated(found: Layouts, log: Backend) -> bool:
    """Whether partitions were added since. It is asked behind the bounds: what came under a layout lies behind it."""
    try:
        return log.layout() != found.layout
    except LogNotFoundError:
        return False  # gone since it was looked at: the next look finds that
