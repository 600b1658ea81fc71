"""The outcomes of commit groups: which of their chunks are visible, and the abort of a group that blocks others."""

import json
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace

from spark_cas.core.group import ABORTED, GroupOutcome, outcome_from_json
from spark_cas.log.objects import documents, paths
from spark_cas.log.objects.chunk_file import StoredChunk
from spark_cas.log.objects.store import RetryingStore

_MOST_REMEMBERED = 1000


class Groups:
    """Read the outcomes of commit groups, which are entries of the registry, and cache them."""

    def __init__(self, store: RetryingStore) -> None:
        self._store = store
        self._decided: OrderedDict[str, GroupOutcome] = OrderedDict()
        self._undecided: set[str] | None = None
        self._read_outcomes: dict[str, GroupOutcome] = {}

    @contextmanager
    def at_one_moment(self) -> Iterator[dict[str, GroupOutcome]]:
        """Keep groups without an outcome undecided within this context, even if an outcome is recorded meanwhile.

        Yield the outcomes that were read within the context.
        """
        self._undecided, self._read_outcomes = set(), {}
        try:
            yield self._read_outcomes
        finally:
            self._undecided = None

    def outcome(self, group: str) -> GroupOutcome | None:
        """Return the outcome of a group; None if none is recorded."""
        if self._undecided is not None and group in self._undecided:
            return None
        if group not in self._decided:
            data = self._store.get(paths.entry("outcome", group))
            if data is None:
                if self._undecided is not None:
                    self._undecided.add(group)
                return None
            # Other chunks will depend on this outcome. Its writer may have crashed before the sync to disk.
            self._store.settle(paths.entry("outcome", group))
            self._remember(group, data)
        if self._undecided is not None:
            self._read_outcomes[group] = self._decided[group]
        return self._decided[group]

    def visible(self, stored: StoredChunk, own: str) -> StoredChunk | None:
        """Return a chunk as a writer of the group ``own`` reads it.

        If the chunk belongs to another group without an outcome, return None. If its group was aborted, the result
        has no progress (`StoredChunk.is_void`).
        """
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
        document = documents.encode(asdict(ABORTED))
        self._remember(group, self._store.put_once(paths.entry("outcome", group), document))

    def _remember(self, group: str, data: bytes | memoryview) -> None:
        text = json.dumps(documents.decode(data, f"the outcome of group {group}"))
        self._decided[group] = outcome_from_json(text, group)
        if len(self._decided) > _MOST_REMEMBERED:
            self._decided.popitem(last=False)
