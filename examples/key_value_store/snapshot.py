"""The state of one shard at one node, in SQLite: keys, and the upcoming offset in the same local transaction.

The log has everything that is here, so a commit need not be on the disk: after a power cut the file is as of an
earlier one (WAL), and the log is read on from the offset that it names.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from key_value_store.records import Changes, Leader
from key_value_store.values import ABSENT, Versioned
from spark_cas.core.errors import LogNotSharedError, StorageError

_MAKE = """
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
    """One shard's state. Its writer is one thread at a time; `peek` may be called by any other meanwhile.

    ``upcoming_offset`` is how far the log was applied, exclusive. A deletion that was not applied was appended after
    ``current_ms``, in milliseconds since 1970.
    """

    def __init__(self, folder: Path, log_id: str, shard: int) -> None:
        """Open the snapshot of a shard, or make an empty one. Raises LogNotSharedError when it is of another log."""
        self._path = folder / f"shard-{shard:05d}.sqlite"
        self._lock = Lock()
        with self._errors():
            self._writer, self._reader = self._connect(), self._connect()
            self._writer.execute("PRAGMA journal_mode = WAL")
            self._writer.execute("PRAGMA synchronous = NORMAL")
            self._writer.executescript(_MAKE)
            self._writer.execute("INSERT OR IGNORE INTO shard VALUES (0, ?, ?, 0, NULL, NULL, 0)", (log_id, shard))
            found = self._writer.execute("SELECT * FROM shard").fetchone()
        _, held_id, held_shard, self.upcoming_offset, leader, leader_offset, self.current_ms = found
        self.leader = None if leader is None else Leader(leader, leader_offset)
        """The newest that the log named below the upcoming offset."""
        if (held_id, held_shard) != (log_id, shard):
            self.close()
            raise LogNotSharedError(
                f"{self._path} is the snapshot of another log than the one that was opened. Give the node a folder "
                f"of its own, or remove this one: the state is read from the log again."
            )

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._reader.close()
            self._writer.close()

    def apply(self, changes: Changes, upcoming_offset: int, current_ms: int | None = None) -> None:
        """Take over what lies in the log between the upcoming offset and the new one, all of it or nothing.

        ``current_ms`` is a time at which the log had no more, milliseconds since 1970; None: it is as before.
        Raises StorageError, also where another process has written to the file.
        """
        leader = changes.leader or self.leader
        current_ms = self.current_ms if current_ms is None else current_ms
        puts = [(key, value, offset) for key, (value, offset) in changes.keys.items() if value is not None]
        gone = [(key,) for key, (value, _) in changes.keys.items() if value is None]
        with self._moving(upcoming_offset, leader, current_ms):
            self._writer.executemany(_PUT, puts)
            self._writer.executemany("DELETE FROM keys WHERE key = ?", gone)

    def forget(self) -> None:
        """Begin anew, with nothing. Raises as `apply`."""
        with self._moving(0, None, self.current_ms):
            self._writer.execute("DELETE FROM keys")

    def get(self, key: bytes) -> Versioned:
        """What a key holds, as the writer's thread sees it."""
        with self._errors():
            return _get(self._writer, key)

    def version_of(self, key: bytes) -> int | None:
        """The version of a key, None of one that is absent."""
        return self.get(key).version

    def peek(self, key: bytes) -> Versioned:
        """What a key holds, to any thread, whatever the writer is at."""
        with self._lock, self._errors():
            return _get(self._reader, key)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)

    @contextmanager
    def _moving(self, upcoming_offset: int, leader: Leader | None, current_ms: int) -> Iterator[None]:
        """What is written until the end of the block is the state as of that offset."""
        to = (upcoming_offset, leader and leader.address, leader and leader.offset, current_ms)
        with self._errors(), self._transaction() as execute:
            moved = execute(
                "UPDATE shard SET upcoming_offset = ?, leader = ?, leader_offset = ?, current_ms = ? "
                "WHERE upcoming_offset = ?",
                (*to, self.upcoming_offset),
            )
            if moved.rowcount != 1:
                raise StorageError(
                    f"{self._path} was written by another process. Give each node a folder of its own."
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
                f"the snapshot {self._path} cannot be used: {error}. Make room, or remove it while no node uses it: "
                f"the state is read from the log again."
            ) from None


def _get(connection: sqlite3.Connection, key: bytes) -> Versioned:
    found = connection.execute("SELECT value, version FROM keys WHERE key = ?", (key,)).fetchone()
    return ABSENT if found is None else Versioned(*found)
