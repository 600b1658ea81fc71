"""The state of one shard at one node, in SQLite. One local transaction updates the keys and the upcoming offset.

The log contains all of this data, so a commit does not have to reach the disk. After a power failure the file may
have an earlier state (WAL). The node then resumes from the offset in the file.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from key_value_store.records import Changes, Leader
from key_value_store.values import ABSENT, Versioned
from spark_cas.core.errors import LogNotSharedError, StorageError

_CREATE_TABLES = """
CREATE TABLE IF NOT EXISTS keys (key BLOB PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS shard (
    only INTEGER PRIMARY KEY CHECK (only = 0), log_id TEXT NOT NULL, shard INTEGER NOT NULL,
    upcoming_offset INTEGER NOT NULL, leader TEXT, leader_offset INTEGER, current_ms INTEGER NOT NULL
);
"""
_PUT = (
    "INSERT INTO keys VALUES (?, ?, ?) "
    "ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = excluded.version"
)
_BUSY_SECONDS = 10.0


class Snapshot:
    """The state of one shard. One thread at a time may write; other threads may call `peek` at any time.

    The snapshot includes all records below ``upcoming_offset``, and all deletions before ``current_ms``, in
    milliseconds since 1970.
    """

    def __init__(self, folder: Path, log_id: str, shard: int) -> None:
        """Open or create the snapshot of a shard. Raises LogNotSharedError if it belongs to another log or shard."""
        self._path = folder / f"shard-{shard:05d}.sqlite"
        self._lock = Lock()
        with self._errors():
            self._writer, self._reader = self._connect(), self._connect()
            self._writer.execute("PRAGMA journal_mode = WAL")
            self._writer.execute("PRAGMA synchronous = NORMAL")
            self._writer.executescript(_CREATE_TABLES)
            self._writer.execute("INSERT OR IGNORE INTO shard VALUES (0, ?, ?, 0, NULL, NULL, 0)", (log_id, shard))
            row = self._writer.execute("SELECT * FROM shard").fetchone()
        _, stored_id, stored_shard, self.upcoming_offset, leader, leader_offset, self.current_ms = row
        self.leader = None if leader is None else Leader(leader, leader_offset)
        """The newest leader in the records below the upcoming offset."""
        if (stored_id, stored_shard) != (log_id, shard):
            self.close()
            raise LogNotSharedError(
                f"the snapshot {self._path} belongs to another log or shard. Nothing was written. Use another folder "
                f"for this node, or delete this one; the node then rebuilds its state from the log."
            )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._reader.close()
            self._writer.close()

    def apply(self, changes: Changes, upcoming_offset: int, current_ms: int | None = None) -> None:
        """Apply the changes between the current upcoming offset and the new one atomically.

        Args:
            changes: The changes of these records.
            upcoming_offset: The new upcoming offset.
            current_ms: A time at which the log had no other records, in milliseconds since 1970; None to keep the
                last one.

        Raises:
            StorageError: The file cannot be used, or another process has written to it.
        """
        leader = changes.leader or self.leader
        current_ms = self.current_ms if current_ms is None else current_ms
        puts = [(key, value, offset) for key, (value, offset) in changes.keys.items() if value is not None]
        deleted = [(key,) for key, (value, _) in changes.keys.items() if value is None]
        with self._transition(upcoming_offset, leader, current_ms):
            self._writer.executemany(_PUT, puts)
            self._writer.executemany("DELETE FROM keys WHERE key = ?", deleted)

    def forget(self) -> None:
        """Remove all keys, and set the upcoming offset to 0. Raises the errors of `apply`."""
        with self._transition(0, None, self.current_ms):
            self._writer.execute("DELETE FROM keys")

    def get(self, key: bytes) -> Versioned:
        """Return the value and version of a key. Only the writing thread may call this."""
        with self._errors():
            return _get(self._writer, key)

    def version_of(self, key: bytes) -> int | None:
        """Return the version of a key; None if it is absent."""
        return self.get(key).version

    def peek(self, key: bytes) -> Versioned:
        """Return the value and version of a key. Any thread may call this at any time."""
        with self._lock, self._errors():
            return _get(self._reader, key)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)

    @contextmanager
    def _transition(self, upcoming_offset: int, leader: Leader | None, current_ms: int) -> Iterator[None]:
        """Commit the writes of the block together with the new upcoming offset."""
        to = (upcoming_offset, leader and leader.address, leader and leader.offset, current_ms)
        with self._errors(), self._transaction() as execute:
            moved = execute(
                "UPDATE shard SET upcoming_offset = ?, leader = ?, leader_offset = ?, current_ms = ? "
                "WHERE upcoming_offset = ?",
                (*to, self.upcoming_offset),
            )
            if moved.rowcount != 1:
                raise StorageError(
                    f"another process has written to the snapshot {self._path}. Use a separate folder for each node."
                )
            yield
        self.upcoming_offset, self.leader, self.current_ms = upcoming_offset, leader, current_ms

    @contextmanager
    def _transaction(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            yield self._writer.execute
            self._writer.execute("COMMIT")
        except BaseException:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StorageError(
                f"SQLite failed on the snapshot {self._path}: {error}. Free disk space, or stop the node and delete "
                f"the snapshot; the node then rebuilds its state from the log."
            ) from None


def _get(connection: sqlite3.Connection, key: bytes) -> Versioned:
    row = connection.execute("SELECT value, version FROM keys WHERE key = ?", (key,)).fetchone()
    return ABSENT if row is None else Versioned(*row)
