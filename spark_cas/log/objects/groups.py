"""What was decided of the groups whose chunks lie in a store."""

import json
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from spark_cas.core.group import ABORTED, GroupOutcome, outcome_from_json, outcome_to_json
from spark_cas.log import clock
from spark_cas.log.objects import documents, paths
from spark_cas.log.objects.chunk_file import StoredChunk
from spark_cas.log.objects.first_writer_wins import put_once
from spark_cas.log.objects.retry import RetryingStore

_MOST_REMEMBERED = 1000


class Groups:
    """The outcomes of groups, each asked for until it is there."""

    def __init__(self, store: RetryingStore) -> None:
        self._store = store
        self._decided: OrderedDict[str, GroupOutcome] = OrderedDict()
        self._undecided: set[str] | None = None
        self._looked_at: dict[str, GroupOutcome] = {}

    @contextmanager
    def at_one_moment(self) -> Iterator[dict[str, GroupOutcome]]:
        """What is found undecided inside stays so; yields the outcomes that were looked at."""
        self._undecided, self._looked_at = set(), {}
        try:
            yield self._looked_at
        finally:
            self._undecided = None

    def outcome(self, group: str) -> GroupOutcome | None:
        """What was decided of a group, None while nothing is."""
        if self._undecided is not None and group in self._undecided:
            return None
        if group not in self._decided:
            data = self._store.get(paths.outcome(group))
            if data is None:
                if self._undecided is not None:
                    self._undecided.add(group)
                return None
            # Whoever appends behind it rests on it, and who put it may have died before it was on the disk.
            self._store.settle(paths.outcome(group))
            self._remember(group, data)
        if self._undecided is not None:
            self._looked_at[group] = self._decided[group]
        return self._decided[group]

    def seen(self, stored: StoredChunk, own: str) -> StoredChunk | None:
        """A chunk as a writer of the group ``own`` sees it: None while its group is undecided, void once aborted."""
        header = stored.header
        if not header.group:
            return stored
        outcome = self.outcome(header.group)
        if outcome is None:
            return stored if header.group == own else None
        if outcome.holds(header.partition, header.end_offset):
            return stored
        return StoredChunk(replace(header, progress=None), stored.checksum)

    def abort(self, group: str) -> None:
        """Abort a group, unless it is decided."""
        document = documents.encode(json.loads(outcome_to_json(ABORTED)))
        self._remember(group, put_once(self._store, paths.outcome(group), document))

    def abort_overdue(self, stored: StoredChunk) -> None:
        """Abort the group of a chunk that is in the way once its time is over."""
        if clock.now_ms() >= stored.header.decide_by_ms:
            self.abort(stored.header.group)

    def _remember(self, group: str, data: bytes | memoryview) -> None:
        self._decided[group] = _decoded(data, group)
        if len(self._decided) > _MOST_REMEMBERED:
            self._decided.popitem(last=False)


def is_void(stored: StoredChunk) -> bool:
    """Whether the offsets of a chunk, as it is seen, hold no record."""
    return stored.header.progress is None


def _decoded(data: bytes | memoryview, group: str) -> GroupOutcome:
    return outcome_from_json(json.dumps(documents.decode(data, f"the outcome of group {group}")), group)
