"""The logs that a read selects, as the driver reads their state."""

import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from spark_cas.core.errors import LogNotFoundError
from spark_cas.core.expansion import Expansion, Layouts
from spark_cas.core.offsets import Bounds
from spark_cas.log.backend import Backend
from spark_cas.log.open import open_topics
from spark_cas.options.read_range import TopicPartition
from spark_cas.options.request import Selection
from spark_cas.spark.worker import open_here


@dataclass(frozen=True, slots=True)
class LogState:
    """The state of a log at the time of a read."""

    log_id: str
    layout_epoch: int
    bounds: dict[int, Bounds]
    """The bounds of the partitions that are read."""
    expansions: tuple[Expansion, ...] = ()
    """The expansions of the log, oldest first. `SelectedLogs.in_layouts` sets them."""


LogStates = dict[str, LogState]
"""The state of each log by its topic, sorted."""


def bounds_in(known: LogStates) -> dict[TopicPartition, Bounds]:
    """Return the bounds of each partition, sorted."""
    return {
        TopicPartition(topic, each): bounds for topic, log in known.items() for each, bounds in log.bounds.items()
    }


class SelectedLogs(ExitStack):
    """The logs of a selection. It opens each log at first use; `close` and the end of a ``with`` block close them."""

    def __init__(self, selection: Selection) -> None:
        super().__init__()
        self._selection = selection
        self._open: dict[str, Backend] = {}
        self._list_topics: Callable[[], tuple[str, ...]] | None = None
        self._absent = set[str]()
        """Logs that were missing in the last read. The next read does not confirm that they are still missing."""
        self._layouts: dict[tuple[str, int], Layouts] = {}
        """Layouts from earlier reads, by topic and known layout epoch."""

    def names(self) -> tuple[str, ...]:
        """Return the names of the selected topics, sorted.

        For a pattern, these are the existing topics that match. Reading their names may raise StorageError.
        """
        pattern = self._selection.pattern
        if pattern is None:
            return self._selection.topics
        if self._list_topics is None:
            self._list_topics = open_topics(self._selection.spec)
            self.callback(setattr, self, "_list_topics", None)
        return tuple(name for name in self._list_topics() if re.fullmatch(pattern, name))

    def log(self, topic: str) -> Backend:
        if topic not in self._open:
            self._open[topic] = self.enter_context(open_here(self._selection.spec.of_topic(topic)))
            self.callback(self._open.pop, topic)
            self.callback(self._layouts.clear)
        return self._open[topic]

    def read(self, *, waiting: bool, without_absent: bool = False) -> LogStates:
        """Read the present state of all logs.

        Args:
            waiting: Wait for the end of open transactions. Then the end offsets include an atomic load in all
                selected partitions, or in none. Without it, the bounds end before the first record that is undecided.
            without_absent: Leave out missing logs.

        Raises:
            LogNotFoundError: A log is missing, and ``without_absent`` is false.
            OptionError: An assigned partition does not exist.
            TruncatedError: A log has another id than the options name.
        """
        known: LogStates = {}
        for topic in self.names():
            try:
                known[topic] = self._state(topic, waiting=waiting)
            except LogNotFoundError:
                if not without_absent:
                    raise
                self._absent.add(topic)
            else:
                self._absent.discard(topic)
        return known

    def in_layouts(self, known: LogStates, known_epochs: Mapping[str, int]) -> LogStates:
        """Return the states with the expansions of each log, for readers that keep the order of each key.

        Partitions of an unfinished expansion are left out. ``known_epochs`` are the layout epochs of the reader's
        last batch, by topic. Raises LogNotFoundError, FormatError, StorageError.
        """
        return {
            topic: self._in_layouts(topic, state, known_epochs.get(topic, state.layout_epoch))
            for topic, state in known.items()
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
            # Read after the end offsets, as in the view `offsets`. Without waiting, the next read detects it.
            newest = log.layouts(layout.epoch).layout if waiting and not self._selection.assigned else layout
            if newest.epoch <= layout.epoch:
                return LogState(layout.log_id, layout.epoch, dict(zip(partitions, bounds, strict=True)))
            # Loads below the end offsets may continue in partitions that this layout does not have.
            layout = newest

    def _in_layouts(self, topic: str, state: LogState, known_epoch: int) -> LogState:
        log = self.log(topic)
        result = self._layouts.get((topic, known_epoch))
        if result is None or _outdated(result, log):
            result = log.layouts(known_epoch)
            if result.pending is None:
                self._layouts[topic, known_epoch] = result
        layout = result.layout
        if layout.log_id != state.log_id:
            return state  # recreated after its state was read; the next read detects it
        return LogState(
            state.log_id,
            min(state.layout_epoch, layout.epoch),
            {partition: bounds for partition, bounds in state.bounds.items() if partition < layout.partitions},
            result.expansions,
        )


def _outdated(result: Layouts, log: Backend) -> bool:
    """Return whether partitions were added to the log after these layouts were read.

    This runs after the bounds were read. If records of a newer layout are below the bounds, it detects that layout.
    """
    try:
        return log.layout() != result.layout
    except LogNotFoundError:
        return False  # deleted after its state was read; the next read detects it
