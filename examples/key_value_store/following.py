"""Following a shard: what the log has beyond the snapshot is applied to it, in offset order."""

import math
import time

from key_value_store.records import READ_COLUMNS, Changes
from key_value_store.snapshot import Snapshot
from spark_cas.core.errors import StorageError, TrimmedError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.log import clock
from spark_cas.log.backend import Backend
from spark_cas.log.lenient_reading import read_leniently

_NOTHING = Changes({})

_YOUNG_MS = 10_000
"""Whoever looked so lately has missed no deletion, however short a time they are kept."""


class Follower:
    """One shard's snapshot and the log that it follows."""

    def __init__(self, log: Backend, shard: int, snapshot: Snapshot) -> None:
        self._log = log
        self._shard = shard
        self._snapshot = snapshot
        self.end_offset = snapshot.upcoming_offset
        """The end that was seen last."""
        self.leader_seen = -math.inf
        """When the newest leader record was seen, on the steady clock."""

    def is_current(self, since_ms: int) -> None:
        """No deletion from before then is missed, as a leader knows of its own appends."""
        self._snapshot.current_ms = max(since_ms, self._snapshot.current_ms)

    def look(self) -> None:
        """Apply what is decided now, waiting for nobody's transaction. Raises TrimmedError, StorageError."""
        began_ms = clock.now_ms()
        self._apply(self._log.bounds_of([self._shard], waiting=False)[0], began_ms)

    def catch_up(self) -> bool:
        """Apply all that was acknowledged before this call; whether that was anything. Raises as `look`."""
        began_ms = clock.now_ms()
        return self._apply(self._log.bounds(self._shard), began_ms)

    def _apply(self, bounds: Bounds, at_ms: int) -> bool:
        snapshot = self._snapshot
        self.end_offset = max(bounds.end_offset, snapshot.upcoming_offset)
        anew = snapshot.upcoming_offset > 0 and self._may_miss_deletions_since(snapshot.current_ms)
        before = 0 if anew else snapshot.upcoming_offset
        if bounds.start_offset > before:
            # What the snapshot has is kept: it may be the only one.
            raise TrimmedError(
                f"shard {self._shard}: the log keeps records from offset {bounds.start_offset} on, and those from "
                f"{before} were not applied yet: the state cannot be made from it. Copy a snapshot "
                f"of a node that is further, and see that the log is compacted, and not trimmed."
            )
        if anew:
            snapshot.forget()
        if before == 0:
            # All of it is read later than this, also by who goes on where this is cut short.
            self.is_current(at_ms)
        if bounds.end_offset <= before:
            self.is_current(at_ms)
            return False
        # Of what is missing all came since then; of all, what was deleted before is gone with its deletion.
        since_ms = clock.now_ms() if before == 0 else snapshot.current_ms
        changed = False
        leader = snapshot.leader
        new = OffsetRange(before, bounds.end_offset)
        for base, records in read_leniently(self._log, self._shard, new, READ_COLUMNS):
            changes = Changes.read(base, records)
            snapshot.apply(changes, base + records.num_rows)
            changed = changed or bool(records.num_rows)
        late = self._may_miss_deletions_since(since_ms)
        snapshot.apply(_NOTHING, bounds.end_offset, None if late else at_ms)
        if late and before == 0:
            raise StorageError(
                f"shard {self._shard}: to read all of it takes longer than the log keeps a deletion, so that one may "
                f"have been missed. Raise delete.retention.ms of its topic."
            )
        if late:
            return self._apply(self._log.bounds_of([self._shard], waiting=False)[0], clock.now_ms())
        if snapshot.leader != leader:
            self.leader_seen = time.monotonic()
        return changed

    def _may_miss_deletions_since(self, since_ms: int) -> bool:
        """Whether compaction may have removed a deletion that came behind that time: nothing would show it.

        Half of the time that they are kept, for clocks differ.
        """
        age_ms = clock.now_ms() - since_ms
        if age_ms < _YOUNG_MS:
            return False
        kept_ms = self._log.tombstones_kept_ms()
        return kept_ms is not None and age_ms > kept_ms // 2
