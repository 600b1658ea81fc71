"""The chunks of one partition as they lie in the store: its start, its end, and the way along them.

Offsets are dense, so the chunk after one that ends at E can only be named E. From any chunk that is known,
the end is found by asking for names until one is free; a listing is needed only when none is known.
"""

import json
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress

from spark_cas.core.errors import ChunkDamagedError, StorageError
from spark_cas.core.offsets import Bounds
from spark_cas.log.objects import documents, paths
from spark_cas.log.objects.chunk_file import HEADER_BYTES, StoredChunk, decode_header, newest_ms
from spark_cas.log.objects.groups import Groups, is_void
from spark_cas.log.objects.retry import RetryingStore


class TrimmedMeanwhileError(Exception):
    """Chunks were trimmed while they were walked along: look at the bounds again."""


class PartitionChunks:
    """One partition of a log in a store, and the newest of its chunks that this process knows of."""

    def __init__(self, store: RetryingStore, number: int, log_id: str, groups: Groups, group: str = "") -> None:
        self._store = store
        self.number = number
        self.log_id = log_id
        self.groups = groups
        self.group = group
        """The group whose chunks are seen though it is undecided: that of the writer who looks."""
        self._newest: StoredChunk | None = None

    def seen_by(self, group: str) -> "PartitionChunks":
        """The partition as the writers of a group see it, who know of the same chunks."""
        own = PartitionChunks(self._store, self.number, self.log_id, self.groups, group)
        own._newest = self._newest
        return own

    def chunk_at(self, base_offset: int) -> StoredChunk | None:
        """The chunk that begins at an offset; None when there is none, or its group is undecided."""
        found = self.stored_at(base_offset)
        return found and self.groups.seen(found, self.group)

    def stored_at(self, base_offset: int) -> StoredChunk | None:
        """The chunk that was put at an offset, whatever was decided of its group; None when there is none."""
        found = self._footer_at(base_offset)
        return found and found[0]

    def dated_chunk_at(self, base_offset: int) -> tuple[StoredChunk, int | None] | None:
        """The chunk that begins at an offset, and the highest timestamp in it, if any; None when there is none."""
        found = self._footer_at(base_offset)
        seen = found and self.groups.seen(found[0], self.group)
        if not found or not seen:
            return None
        return seen, None if is_void(seen) else newest_ms(found[1])

    def is_undecided(self, stored: StoredChunk) -> bool:
        """Whether a chunk that was put is in the log for its own group alone."""
        return self.groups.seen(stored, "") is None

    def is_gap(self, stored: StoredChunk) -> bool:
        """Whether a chunk that was put holds no record for anybody, as one of a group that was aborted."""
        seen = self.groups.seen(stored, "")
        return seen is not None and is_void(seen)

    def require_in_place(self, stored: StoredChunk, base_offset: int) -> None:
        """ChunkDamagedError unless what an offset's name holds was written for that very place."""
        header = stored.header
        if (header.log_id, header.partition, header.base_offset) != (self.log_id, self.number, base_offset):
            raise ChunkDamagedError(
                f"{paths.chunk(self.number, base_offset)}: it is the chunk of another place or of another log: a "
                f"file was moved or replaced. Nothing of it was read. Restore the file from a copy."
            )

    def chunks_from(self, base_offset: int, known_end: int = 0) -> Iterator[StoredChunk]:
        """The chunks from the one that begins at an offset to the end, one after the other.

        They reach at least ``known_end``, or it is said why not: TrimmedMeanwhileError, or ChunkDamagedError
        when a chunk is missing.
        """
        while (stored := self.chunk_at(base_offset)) is not None:
            yield stored
            base_offset = stored.header.end_offset
        if base_offset < known_end:
            raise TrimmedMeanwhileError if base_offset < self.start_offset() else self.missing(base_offset)

    def missing(self, base_offset: int) -> ChunkDamagedError:
        """The error for a free name where a chunk must be."""
        return ChunkDamagedError(
            f"{paths.chunk(self.number, base_offset)}: the chunk is missing, though the log has acknowledged offset "
            f"{base_offset}. Restore the file from a copy, or trim the log past it. (If the log was trimmed while "
            f"it was read, read again.)"
        )

    def start_offset(self) -> int:
        """The oldest offset that trimming has kept."""
        names = self._store.below(paths.starts(self.number))
        return int(names[-1].rpartition("/")[2].partition(".")[0]) if names else 0

    def find_end(self, *, by_listing: bool = False) -> tuple[Bounds, StoredChunk | None]:
        """The bounds, and the newest chunk, None before the first one."""
        known = None if by_listing else self._newest
        hinted = None if by_listing or known else self._hinted()
        newest = self._walk(known or hinted or self._listed())
        start = self.start_offset()
        if hinted and newest and not _is_stale(newest, start) and self._has_hole_after(newest):
            start = self.start_offset()
            if not _is_stale(newest, start):
                raise self.missing(newest.header.end_offset)
        while _is_stale(newest, start):
            # What was known has been trimmed away, and the names behind it may be free for that reason.
            before, newest, start = start, self._walk(self._listed()), self.start_offset()
            if _is_stale(newest, start) and start == before:
                raise ChunkDamagedError(
                    f"{paths.partition(self.number)}: the log was trimmed up to offset {start}, but no chunk from "
                    f"there on is left: files are missing. Restore them from a copy."
                )
        self._newest = newest
        return Bounds(start, newest.header.end_offset if newest else 0), newest

    def records_end(self, newest: StoredChunk | None) -> int:
        """Where the records of the partition end, whose newest chunk this is: control chunks may come after them."""
        end = newest.header.end_offset if newest else 0
        while newest and newest.header.progress is None:
            end, previous = newest.header.base_offset, newest.header.previous
            newest = self.chunk_at(previous.base_offset) if previous else None
        return end

    def forget(self) -> None:
        """Look at the store afresh next time."""
        self._newest = None

    def appended(self, stored: StoredChunk) -> None:
        """This process has just appended a chunk at the end."""
        self._newest = stored

    def write_hint(self, path: str, stored: StoredChunk) -> None:
        """Leave a hint where the next process may begin to look. Nothing is lost when that fails."""
        with suppress(StorageError):
            self._store.overwrite(path, documents.encode({"base_offset": stored.header.base_offset}))

    def read_hint(self, path: str) -> StoredChunk | None:
        """The chunk that a hint names; None when there is no hint, or none that makes sense."""
        data = self._store.get(path)
        if data is None:
            return None
        try:
            base_offset = json.loads(bytes(data))["value"]["base_offset"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        return self.chunk_at(base_offset) if isinstance(base_offset, int) and base_offset >= 0 else None

    def base_offsets(self) -> list[int]:
        """Where each chunk begins, in order, from a listing of the partition."""
        return _base_offsets(self._store.below(paths.partition(self.number)))

    def _footer_at(self, base_offset: int) -> tuple[StoredChunk, memoryview] | None:
        path = paths.chunk(self.number, base_offset)
        end = self._store.get_end(path, HEADER_BYTES)
        if end is None:
            return None
        stored = decode_header(end, path)
        self.require_in_place(stored, base_offset)
        return stored, end

    def _hinted(self) -> StoredChunk | None:
        return self.read_hint(paths.end_hint(self.number))

    def _listed(self) -> StoredChunk | None:
        bases = self.base_offsets()
        newest = self.chunk_at(bases[-1]) if bases else None
        if bases and newest is None:
            # Chunks of an undecided group are the last ones. (Or that one has just been trimmed: all others too.)
            hidden = bisect_left(bases, 1, key=lambda base: int(self.chunk_at(base) is None))
            newest = self.chunk_at(bases[hidden - 1]) if hidden else None
        return newest

    def _walk(self, known: StoredChunk | None) -> StoredChunk | None:
        """The chunk at which the way from a known one ends."""
        if known is None:
            return None
        for stored in self.chunks_from(known.header.end_offset):
            if stored.header.previous != known.id:
                if known.header.base_offset < self.start_offset():
                    # Trimmed, or put again by a writer that slept through the trimming: no way leads on.
                    return known
                raise ChunkDamagedError(
                    f"{paths.chunk(self.number, stored.header.base_offset)}: it was not written after the chunk "
                    f"that lies before it. A file was replaced; restore both from a copy."
                )
            known = stored
        return known

    def _has_hole_after(self, newest: StoredChunk) -> bool:
        """A free name is the end only when no chunk lies behind it: seen to at the first look.

        A listing while others append may show what came last and not what came before: that is there by now.
        """
        end, path = newest.header.end_offset, paths.chunk(self.number, newest.header.base_offset)
        later = _base_offsets(self._store.below(paths.partition(self.number), after=path))
        return bool(later) and later[0] != end and self.stored_at(end) is None


def _base_offsets(listed: list[str]) -> list[int]:
    return [base for base in map(paths.base_offset, listed) if base is not None]


def _is_stale(newest: StoredChunk | None, start_offset: int) -> bool:
    """The newest chunk is never trimmed, so one below the start is not the newest."""
    return newest.header.base_offset < start_offset if newest else start_offset > 0
