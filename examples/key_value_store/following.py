"""Follow a shard: apply the records after its snapshot, in offset order."""

import math
import time

from key_value_store.records import READ_COLUMNS, Changes
from key_value_store.snapshot import Snapshot
from spark_cas.core.errors import StorageError, TrimmedError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.log import clock
from spark_cas.log.backend import Backend

_NO_CHANGES = Changes({})

_YOUNG_MS = 10_000
"""A snapshot that was current this recently has missed no deletion, however briefly the log keeps deletions."""


class Follower:
    """Keeps the snapshot of one shard up to date with the log."""

    def __init__(self, log: Backend, shard: int, snapshot: Snapshot) -> None:
        self._log = log
        self._shard = shard
        self._snapshot = snapshot
        self.end_offset = snapshot.upcoming_offset
        """The end offset of the partition when it was last read."""
        self.leader_read_at = -math.inf
        """When the newest leader record was read, on the monotonic clock."""

    def mark_current(self, since_ms: int) -> None:
        """Record that the snapshot includes all deletions before ``since_ms``."""
        self._snapshot.current_ms = max(since_ms, self._snapshot.current_ms)

    def read(self) -> None:
        """Apply all committed records, without waiting for open transactions. Raises TrimmedError, StorageError."""
        began_ms = clock.now_ms()
        self._apply(self._log.bounds_of([self._shard], waiting=False)[0], began_ms)

    def catch_up(self) -> bool:
        """Apply all records acknowledged before this call, and return whether there were any.

        Raises the errors of `look`.
        """
        began_ms = clock.now_ms()
        return self._apply(self._log.bounds(self._shard), began_ms)

    def _apply(self, bounds: Bounds, at_ms: int) -> bool:
        snapshot = self._snapshot
        self.end_offset = max(bounds.end_offset, snapshot.upcoming_offset)
        rebuild = snapshot.upcoming_offset > 0 and self._may_miss_deletions_since(snapshot.current_ms)
        before = 0 if rebuild else snapshot.upcoming_offset
        if bounds.start_offset > before:
            # Keep the snapshot: it may be the only copy.
            raise TrimmedError(
                f"shard {self._shard}: the log starts at offset {bounds.start_offset}, but the node needs the "
                f"records from offset {before} on to build its state. Nothing was written. Copy a newer snapshot of "
                f"another node, and check that the log is compacted instead of trimmed."
            )
        if rebuild:
            snapshot.forget()
        if before == 0:
            # All records are read after this time, even if this replay is interrupted and resumed.
            self.mark_current(at_ms)
        if bounds.end_offset <= before:
            self.mark_current(at_ms)
            return False
        # A resumed read can only miss deletions after `current_ms`. A full read can only miss deletions during the
        # read: compaction removes an earlier deletion together with the deleted record.
        since_ms = clock.now_ms() if before == 0 else snapshot.current_ms
        changed = False
        leader = snapshot.leader
        new = OffsetRange(before, bounds.end_offset)
        for base, records in self._log.read_leniently(self._shard, new, READ_COLUMNS):
            changes = Changes.read(base, records)
            snapshot.apply(changes, base + records.num_rows)
            changed = changed or bool(records.num_rows)
        late = self._may_miss_deletions_since(since_ms)
        snapshot.apply(_NO_CHANGES, bounds.end_offset, None if late else at_ms)
        if late and before == 0:
            raise StorageError(
                f"shard {self._shard}: reading all records takes longer than the log keeps a deletion, so the state "
                f"may miss one. Nothing was written. Increase delete.retention.ms of the topic."
            )
        if late:
            return self._apply(self._log.bounds_of([self._shard], waiting=False)[0], clock.now_ms())
        if snapshot.leader != leader:
            self.leader_read_at = time.monotonic()
        return changed

    def _may_miss_deletions_since(self, since_ms: int) -> bool:
        """Return whether compaction may have removed a deletion appended after ``since_ms``.

        A reader could not detect this. Half of the retention time is the limit, because clocks differ.
        """
        age_ms = clock.now_ms() - since_ms
        if age_ms < _YOUNG_MS:
            return False
        kept_ms = self._log.tombstones_kept_ms()
        return kept_ms is not None and age_ms > kept_ms // 2
