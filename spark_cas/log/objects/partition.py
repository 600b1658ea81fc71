"""Chunks of one partition in the store: its start, its end, the links between them, reads and trimming.

Offsets are dense, so the name of the chunk after one that ends at offset E can only be E. To find the end from a
known chunk, request the next name until one is free. A listing is necessary only if no chunk is known.

A trim records the new start offset and the last chunks before it, and then deletes the chunks below it. If a writer's
chunk is below the start, the record shows whether the chunk was part of the log. A late writer may have reused a name
that trimming had freed. The record also keeps the ledger entries of unfinished jobs, because the ledger of the log is
in the chunks.
"""

import json
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass

import pyarrow as pa

from spark_cas.core.errors import ChunkDamagedError, StorageError, TrimmedError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.plan import Progress
from spark_cas.core.recorded_fields import from_fields, in_format
from spark_cas.core.records import RECORDS, first_since
from spark_cas.log.deadline import within
from spark_cas.log.objects import documents, paths
from spark_cas.log.objects.chunk_file import (
    HEADER_BYTES,
    ChunkHeader,
    ChunkId,
    StoredChunk,
    decode,
    decode_header,
    encode,
    newest_ms,
)
from spark_cas.log.objects.commit_groups import Groups
from spark_cas.log.objects.store import RetryingStore
from spark_cas.log.objects.store_replies import PutReply

_REMEMBERED = 32
"""Number of chunks that are recorded before a start, and number of starts that are kept."""


class TrimmedMeanwhileError(Exception):
    """Chunks were trimmed during a walk. Read the bounds, then retry."""


@dataclass(frozen=True, slots=True)
class TrimmedLedger:
    """The newest ledger entries in the chunks below the start of a partition."""

    known_from: int
    """The offset from which on no entry is missing, except those of finished jobs. It is above 0 if a trim removed a
    damaged chunk, or if a version of this software trimmed that does not keep entries."""
    ledger: tuple[Progress, ...] = ()
    """The entry of each job that was planned and not complete when the trim began."""


class PartitionChunks:
    """The chunks of one partition, with a cache of the newest one."""

    def __init__(self, store: RetryingStore, number: int, log_id: str, groups: Groups, group: str = "") -> None:
        self._store = store
        self.number = number
        self.log_id = log_id
        self.groups = groups
        self.group = group
        """The group whose uncommitted chunks are included; empty to include none."""
        self._newest: StoredChunk | None = None
        self._trim_record = (0, TrimmedLedger(0))
        """The start offset whose record was read last, and its ledger entries."""

    def as_read_by(self, group: str) -> "PartitionChunks":
        """Return the partition as the writers of a group read it. The copy shares the cached newest chunk."""
        own = PartitionChunks(self._store, self.number, self.log_id, self.groups, group)
        own._newest = self._newest
        return own

    def chunk_at(self, base_offset: int) -> StoredChunk | None:
        """Return the chunk that begins at an offset; None if there is none or its group has no outcome."""
        result = self.stored_at(base_offset)
        return result and self.groups.visible(result, self.group)

    def stored_at(self, base_offset: int) -> StoredChunk | None:
        """Return the chunk that is stored at an offset, regardless of its group's outcome; None if there is none."""
        result = self._footer_at(base_offset)
        return result and result[0]

    def is_undecided(self, stored: StoredChunk) -> bool:
        """Return whether only the writers of its own group can read a stored chunk."""
        return self.groups.visible(stored, "") is None

    def is_gap(self, stored: StoredChunk) -> bool:
        """Return whether a stored chunk holds no record for any reader, as after its group was aborted."""
        known = self.groups.visible(stored, "")
        return known is not None and known.is_void

    def require_in_place(self, stored: StoredChunk, base_offset: int) -> None:
        """Raise ChunkDamagedError unless a chunk was written for this log, partition and offset."""
        header = stored.header
        if (header.log_id, header.partition, header.base_offset) != (self.log_id, self.number, base_offset):
            raise ChunkDamagedError(
                f"{paths.chunk(self.number, base_offset)}: it is the chunk of another place or of another log: a "
                f"file was moved or replaced. Nothing of it was read. Restore the file from a copy."
            )

    def chunks_from(self, base_offset: int, known_end: int = 0) -> Iterator[StoredChunk]:
        """Yield the chunks in order, from the one that begins at an offset to the end.

        Raises:
            TrimmedMeanwhileError: if chunks below ``known_end`` were trimmed
            ChunkDamagedError: if a chunk below ``known_end`` is missing
        """
        while (stored := self.chunk_at(base_offset)) is not None:
            yield stored
            base_offset = stored.header.end_offset
        if base_offset < known_end:
            raise TrimmedMeanwhileError if base_offset < self.start_offset() else self.missing(base_offset)

    def missing(self, base_offset: int) -> ChunkDamagedError:
        return ChunkDamagedError(
            f"{paths.chunk(self.number, base_offset)}: the chunk is missing, though the log has acknowledged offset "
            f"{base_offset}. Restore the file from a copy, or trim the log past it. (If the log was trimmed while "
            f"it was read, read again.)"
        )

    def start_offset(self) -> int:
        """Return the start offset that trimming recorded; 0 if the partition was never trimmed.

        A chunk below the start need not be part of the log: a writer that stalled during trimming may have put it
        under a freed name. So read the start after such a chunk.
        """
        names = self._store.below(paths.starts(self.number))
        return int(names[-1].rpartition("/")[2].partition(".")[0]) if names else 0

    def find_end(self, *, by_listing: bool = False) -> tuple[Bounds, StoredChunk | None]:
        """Return the bounds, and the newest chunk or None. With ``by_listing``, ignore cached chunks and hints.

        Raises ChunkDamagedError if a chunk is missing or does not follow its predecessor.
        """
        known = None if by_listing else self._newest
        hinted = None if by_listing or known else self.read_hint(paths.end_hint(self.number))
        newest = self._walk(known or hinted or self._listed())
        start = self.start_offset()
        if hinted and newest and not _is_trimmed(newest, start) and self._has_hole_after(newest):
            start = self.start_offset()
            if not _is_trimmed(newest, start):
                raise self.missing(newest.header.end_offset)
        while _is_trimmed(newest, start):
            # The known chunk was trimmed. The chunks after it may be trimmed too, so their names may be free.
            before, newest, start = start, self._walk(self._listed()), self.start_offset()
            if _is_trimmed(newest, start) and start == before:
                raise ChunkDamagedError(
                    f"{paths.partition(self.number)}: the log was trimmed up to offset {start}, but no chunk from "
                    f"there on is left: files are missing. Restore them from a copy."
                )
        self._newest = newest
        return Bounds(start, newest.header.end_offset if newest else 0), newest

    def records_end(self, newest: StoredChunk | None) -> int:
        """Return the end offset of the last record. Control chunks without records may follow it."""
        end = newest.header.end_offset if newest else 0
        while newest and newest.header.progress is None:
            end, previous = newest.header.base_offset, newest.header.previous
            newest = self.chunk_at(previous.base_offset) if previous else None
        return end

    def forget(self) -> None:
        self._newest = None

    def appended(self, stored: StoredChunk) -> None:
        self._newest = stored

    def write_hint(self, path: str, stored: StoredChunk) -> None:
        """Write a hint that names a chunk, from which later walks can start. A failure has no effect."""
        with suppress(StorageError):
            self._store.overwrite(path, documents.encode({"base_offset": stored.header.base_offset}))

    def read_hint(self, path: str) -> StoredChunk | None:
        """Return the chunk that a hint names; None if the hint is missing or invalid."""
        data = self._store.get(path)
        if data is None:
            return None
        try:
            base_offset = json.loads(bytes(data))["value"]["base_offset"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        return self.chunk_at(base_offset) if isinstance(base_offset, int) and base_offset >= 0 else None

    def base_offsets(self) -> list[int]:
        return _base_offsets(self._store.below(paths.partition(self.number)))

    def read(
        self, start: int, offsets: OffsetRange, columns: tuple[str, ...]
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the records of a range in order, each batch with the offset of its first record.

        ``start`` is the start offset of the partition, and the range is within its bounds. The reader verifies whole
        chunks, and checks that each follows its predecessor.

        Raises:
            TrimmedError: if a chunk was trimmed during the read
            ChunkDamagedError: if a chunk is missing, corrupt or out of place
        """
        if len(offsets) == 0:
            return
        at = self._begin_of_chunk(start, offsets.base_offset)
        before: StoredChunk | None = None
        while at < offsets.end_offset:
            path = paths.chunk(self.number, at)
            data = self._store.get(path)
            if at < self.start_offset():
                raise self._trimmed(at)
            if data is None:
                raise self.missing(at)
            stored, batches = decode(data, path, columns)
            del data  # the batches own the memory, which is released before the next chunk is read
            self.require_in_place(stored, at)
            if before is not None and stored.header.previous != before.id:
                raise ChunkDamagedError(
                    f"{path}: it does not follow the chunk before it: a file was moved or replaced. Nothing of it "
                    f"was read. Restore the files of this partition from a copy."
                )
            known = self.groups.visible(stored, "")
            if known is None:
                raise self.missing(at)  # the range ends before any uncommitted chunk
            if not known.is_void:
                yield from _part(batches, at, offsets)
            del batches  # release the batches of a skipped chunk
            before, at = stored, stored.header.end_offset

    def offset_since(self, timestamp_ms: int) -> int | None:
        """Return the offset of the first record with a timestamp of at least this time, None if all are older.

        Timestamps need not rise with offsets, so this reads the newest timestamp of each chunk, from the start of the
        partition on. It takes a request per chunk, and one to read the chunk with the record. If trimming removes a
        chunk meanwhile, the search resumes at the new start.
        """
        bounds, _ = self.find_end()
        at = bounds.start_offset
        while at < bounds.end_offset:
            try:
                footer = self._footer_at(at)
                known = footer and self.groups.visible(footer[0], self.group)
                if not footer or not known:
                    raise self.missing(at) if at >= self.start_offset() else self._trimmed(at)
                offsets = OffsetRange(at, known.header.end_offset)
                newest = None if known.is_void else newest_ms(footer[1])
                if newest is not None and newest >= timestamp_ms:
                    for base, records in self.read(bounds.start_offset, offsets, ("timestamp",)):
                        result = first_since(records, timestamp_ms)
                        if result is not None:
                            return base + result
                at = offsets.end_offset
            except TrimmedError:
                at = self.start_offset()
        return None

    def _trimmed(self, at: int) -> TrimmedError:
        return TrimmedError(
            f"partition {self.number}: offset {at} was trimmed while it was read. Read again from its start.",
            partition=self.number,
        )

    def _begin_of_chunk(self, start: int, offset: int) -> int:
        """Return the base offset of the chunk that contains an offset, in a partition that begins at ``start``.

        A reader that follows the log resumes at the end of a chunk. The next chunk begins there, so no listing is
        necessary.
        """
        if offset == start or self.stored_at(offset) is not None:
            return offset
        bases = [base for base in self.base_offsets() if base >= start]
        index = bisect_right(bases, offset)
        return bases[index - 1] if index else start

    def trim(self, before_offset: int, *, dry_run: bool = False) -> Bounds:
        """Delete the chunks that end at or before an offset, except the newest chunk, and return the new bounds.

        Raises:
            ValueError: if the offset is negative or past the end
            StorageError: if the store fails until the deadline
        """
        with within(self._store.patience_seconds):
            bounds, _ = self.find_end(by_listing=True)  # a walk would fail at a damaged chunk
            Bounds(0, bounds.end_offset).require(OffsetRange(before_offset, before_offset))
            # Uncommitted chunks are after the end and do not count as the newest chunk.
            bases = [base for base in self.base_offsets() if base < bounds.end_offset]
            keep_from = max((base for base in bases if base <= before_offset), default=0)
            if dry_run:
                return Bounds(max(keep_from, bounds.start_offset), bounds.end_offset)
        # Each read and each delete has its own deadline, because many of them take long.
        if keep_from > bounds.start_offset:
            trimmed = [[each.base_offset, each.checksum] for each in self._chain_before(keep_from)]
            ledger = asdict(self._ledger_below(keep_from, bases))
            document = documents.encode({"start_offset": keep_from, "trimmed": trimmed, **ledger})
            self._store.put_once(paths.start(self.number, keep_from), document)
        start = self.start_offset()
        self._store.delete([paths.chunk(self.number, base) for base in bases if base < start])
        self._store.delete(self._store.below(paths.starts(self.number))[:-_REMEMBERED])
        return Bounds(start, bounds.end_offset)

    def was_in_log(self, stored: StoredChunk) -> bool | None:
        """Return whether a chunk below the start was ever part of the log; None if that is no longer known."""
        base = stored.header.base_offset
        answer = None
        for path in self._store.below(paths.starts(self.number), after=paths.start(self.number, base)):
            data = self._store.get(path)
            if data is None:
                continue
            trimmed = [ChunkId(*each) for each in documents.decode(data, path)["trimmed"]]
            if stored.id in trimmed:
                return True
            if any(each.base_offset <= base for each in trimmed):
                answer = False
        return answer

    def trimmed_ledger(self, start: int) -> TrimmedLedger:
        """Return the ledger entries that the trim to a start offset recorded.

        Raises TrimmedMeanwhileError if later trims removed the record.
        """
        if start != self._trim_record[0]:
            path = paths.start(self.number, start)
            data = self._store.get(path)
            if data is None:
                raise TrimmedMeanwhileError
            fields = {"known_from": start, "ledger": [], **documents.decode(data, path)}
            with in_format(path):
                fields = {name: fields[name] for name in ("known_from", "ledger")}
                self._trim_record = start, from_fields(TrimmedLedger, fields)
        return self._trim_record[1]

    def is_unfinished(self, job: str, pinned_by: str | None = None) -> bool:
        """Return whether the registry has a plan of a job, which is that of ``pinned_by``, and no completion."""
        if self._store.get(paths.entry("completion", job)) is not None:
            return False
        data = self._store.get(paths.entry("plan", job))
        if data is None:
            return False
        return pinned_by is None or documents.decode(data, f"the plan of job {job!r}").get("pinned_by") == pinned_by

    def _ledger_below(self, offset: int, bases: list[int]) -> TrimmedLedger:
        """Return the newest ledger entry of each unfinished job in the chunks below an offset.

        ``bases`` are the base offsets of the chunks, for a search after a damaged one. Raises StorageError if other
        trims interrupted each attempt until the deadline.
        """
        doing = f"trimming {self._store.at(paths.partition(self.number))}"
        wait = self._store.wait(doing)
        while True:
            at = start = self.start_offset()
            with suppress(TrimmedMeanwhileError):
                trimmed = self.trimmed_ledger(start)
                known_from, ledger = trimmed.known_from, {each.job: each for each in trimmed.ledger}
                while at < offset:
                    stored = None
                    with suppress(ChunkDamagedError):
                        stored = self.chunk_at(at)
                    if stored is None:
                        # Any job may have had a newer entry here.
                        at = known_from = min((base for base in bases if base > at), default=offset)
                        ledger = {}
                    else:
                        if stored.header.progress:
                            ledger[stored.header.progress.job] = stored.header.progress
                        at = stored.header.end_offset
                if self.start_offset() == start:
                    # A job without a plan was forgotten, or never resumes.
                    kept = (each for each in ledger.values() if self.is_unfinished(each.job))
                    return TrimmedLedger(known_from, tuple(kept))
            if not wait.again("others trimmed it meanwhile"):
                raise StorageError(
                    f"{doing}: others trimmed it again and again for {wait.waited:.0f} s. Nothing was deleted. Trim "
                    f"again later."
                )

    def end(self, epoch: int) -> int:
        """Append the control chunk of an epoch, unless the partition has one, and return the end offset.

        A control chunk holds no record, occupies one offset and carries the new layout epoch. A chunk may only follow
        a chunk whose epoch is not higher than its own. Writers of the old layout therefore cannot append at or after
        a control chunk, and its end is the threshold of the partition.

        After each put, this reads the end again, for every reply of the store. If another writer appended first, it
        retries at the new end. Raises StorageError if other writers won, or the store did not reply, until the
        deadline.
        """
        doing = f"ending {self._store.at(paths.partition(self.number))}"
        wait = self._store.wait(doing)
        while True:
            bounds, newest = self.find_end()
            if newest and newest.header.layout_epoch >= epoch:
                return bounds.end_offset
            header = ChunkHeader(
                log_id=self.log_id,
                partition=self.number,
                base_offset=bounds.end_offset,
                end_offset=bounds.end_offset + 1,
                write_id=uuid.uuid4().hex,
                layout_epoch=epoch,
                previous=newest.id if newest else None,
                progress=None,
            )
            data, _ = encode(header, RECORDS.empty_table())
            if self._store.create(paths.chunk(self.number, bounds.end_offset), data) is PutReply.ALREADY_EXISTS:
                there = self.stored_at(bounds.end_offset)
                if there and self.is_undecided(there):
                    self.groups.abort(there.header.group)  # its layout ends here
            if not wait.again("others were faster, or the store did not answer"):
                raise StorageError(
                    f"{doing}: others were faster, or the store did not answer, for {wait.waited:.0f} s. Expand the "
                    f"log again, to the same count."
                )

    def _chain_before(self, base_offset: int) -> list[ChunkId]:
        """Return the readable chunks before one, newest first. Each id is from the chunk after it."""
        chain: list[ChunkId] = []
        # Trimming must also work past a damaged chunk.
        with suppress(ChunkDamagedError):
            chunk = self.chunk_at(base_offset)
            while chunk and chunk.header.previous and len(chain) < _REMEMBERED:
                chain.append(chunk.header.previous)
                chunk = self.chunk_at(chain[-1].base_offset)
                if chunk and chunk.id != chain[-1]:
                    break
        return chain

    def _footer_at(self, base_offset: int) -> tuple[StoredChunk, memoryview] | None:
        path = paths.chunk(self.number, base_offset)
        end = self._store.get_end(path, HEADER_BYTES)
        if end is None:
            return None
        stored = decode_header(end, path)
        self.require_in_place(stored, base_offset)
        return stored, end

    def _listed(self) -> StoredChunk | None:
        bases = self.base_offsets()
        newest = self.chunk_at(bases[-1]) if bases else None
        if bases and newest is None:
            # All chunks of groups without an outcome are at the end. (If this chunk was trimmed meanwhile, so were
            # all before it.)
            hidden = bisect_left(bases, 1, key=lambda base: int(self.chunk_at(base) is None))
            newest = self.chunk_at(bases[hidden - 1]) if hidden else None
        return newest

    def _walk(self, known: StoredChunk | None) -> StoredChunk | None:
        """Follow the links from a known chunk and return the last one."""
        if known is None:
            return None
        for stored in self.chunks_from(known.header.end_offset):
            if stored.header.previous != known.id:
                if known.header.base_offset < self.start_offset():
                    return known  # below the start, so the walk ends here
                raise ChunkDamagedError(
                    f"{paths.chunk(self.number, stored.header.base_offset)}: it was not written after the chunk "
                    f"before it. A file was replaced; restore both from a copy."
                )
            known = stored
        return known

    def _has_hole_after(self, newest: StoredChunk) -> bool:
        """Return whether later chunks exist although the chunk after ``newest`` is missing.

        A listing during concurrent appends may include a later chunk without an earlier one. The second read of the
        missing name excludes that case.
        """
        end, path = newest.header.end_offset, paths.chunk(self.number, newest.header.base_offset)
        later = _base_offsets(self._store.below(paths.partition(self.number), after=path))
        return bool(later) and later[0] != end and self.stored_at(end) is None


def _base_offsets(listed: list[str]) -> list[int]:
    return [base for base in map(paths.base_offset, listed) if base is not None]


def _is_trimmed(newest: StoredChunk | None, start_offset: int) -> bool:
    """Return whether the newest known chunk was trimmed. Trimming never removes the newest chunk of a partition."""
    return newest.header.base_offset < start_offset if newest else start_offset > 0


def _part(batches: Iterator[pa.RecordBatch], at: int, offsets: OffsetRange) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the records of a chunk that are within a range. ``at`` is the base offset of the chunk."""
    for batch in batches:
        here = OffsetRange(at, at + batch.num_rows)
        part = here.intersect(offsets)
        if part == here:
            yield at, batch
        elif part is not None:
            yield part.base_offset, batch.slice(part.base_offset - at, len(part))
        at = here.end_offset
