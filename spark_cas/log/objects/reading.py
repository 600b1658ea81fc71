"""Reading a range of offsets: whole chunks are checked, and each must follow the one before it."""

from bisect import bisect_right
from collections.abc import Iterator

import pyarrow as pa

from spark_cas.core.errors import ChunkDamagedError, TrimmedError
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.records import first_since
from spark_cas.log.objects import paths
from spark_cas.log.objects.chunk_file import StoredChunk, decode
from spark_cas.log.objects.groups import is_void
from spark_cas.log.objects.partition import PartitionChunks
from spark_cas.log.objects.store import Store


def read_chunks(
    store: Store, chunks: PartitionChunks, start: int, offsets: OffsetRange, columns: tuple[str, ...]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (offset of the first, records) for a range within the partition, which begins at ``start``, in order."""
    if len(offsets) == 0:
        return
    at = _begin_of_chunk(chunks, start, offsets.base_offset)
    before: StoredChunk | None = None
    while at < offsets.end_offset:
        path = paths.chunk(chunks.number, at)
        data = store.get(path)
        if at < chunks.start_offset():
            # The name is free now, or holds a chunk that a writer put there which slept through the trimming.
            raise TrimmedError(
                f"partition {chunks.number}: offset {at} was trimmed while it was read. Read again from its start."
            )
        if data is None:
            raise chunks.missing(at)
        stored, batches = decode(data, path, columns)
        del data  # the batches have it, and are at their end before the next chunk comes into memory
        chunks.require_in_place(stored, at)
        _require_next(stored, before, path)
        seen = chunks.groups.seen(stored, "")
        if seen is None:
            raise chunks.missing(at)  # what lies below the end was decided
        if not is_void(seen):
            yield from _part(batches, at, offsets)
        del batches  # of a chunk that was passed over, they are not at their end
        before, at = stored, stored.header.end_offset


def offset_since(store: Store, chunks: PartitionChunks, timestamp_ms: int) -> int | None:
    """Return the offset of the first record with a timestamp of at least this time, None if all are older.

    Timestamps need not rise with offsets, so this reads the newest timestamp of each chunk, from the start of the
    partition on. It takes a request per chunk, and one to read the chunk with the record. If trimming removes a chunk
    meanwhile, the search resumes at the new start.
    """
    bounds, _ = chunks.find_end()
    at = bounds.start_offset
    while at < bounds.end_offset:
        try:
            stored, newest_ms = _dated_chunk(chunks, at)
            offsets = OffsetRange(at, stored.header.end_offset)
            if newest_ms is not None and newest_ms >= timestamp_ms:
                for base, records in read_chunks(store, chunks, bounds.start_offset, offsets, ("timestamp",)):
                    found = first_since(records, timestamp_ms)
                    if found is not None:
                        return base + found
            at = offsets.end_offset
        except TrimmedError:
            at = chunks.start_offset()
    return None


def _dated_chunk(chunks: PartitionChunks, at: int) -> tuple[StoredChunk, int | None]:
    """The chunk at an offset, and the newest timestamp in it."""
    dated = chunks.dated_chunk_at(at)
    if dated is not None:
        return dated
    if at >= chunks.start_offset():
        raise chunks.missing(at)
    raise TrimmedError(f"partition {chunks.number}: offset {at} was trimmed. Read again from its start.")


def _begin_of_chunk(chunks: PartitionChunks, start: int, offset: int) -> int:
    """Where the chunk begins that holds an offset of a partition, which begins at ``start``.

    Who follows a log reads on where a chunk ended: then the next begins there, and nothing is listed.
    """
    if offset == start or chunks.stored_at(offset) is not None:
        return offset
    # What lies below the start was trimmed, or put by a writer that slept through the trimming.
    bases = [base for base in chunks.base_offsets() if base >= start]
    index = bisect_right(bases, offset)
    return bases[index - 1] if index else start


def _part(batches: Iterator[pa.RecordBatch], at: int, offsets: OffsetRange) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The records of a chunk that begins ``at``, as far as they lie in a range."""
    for batch in batches:
        here = OffsetRange(at, at + batch.num_rows)
        part = here.intersect(offsets)
        if part == here:
            yield at, batch
        elif part is not None:
            yield part.base_offset, batch.slice(part.base_offset - at, len(part))
        at = here.end_offset


def _require_next(stored: StoredChunk, before: StoredChunk | None, path: str) -> None:
    if before is not None and stored.header.previous != before.id:
        raise ChunkDamagedError(
            f"{path}: it does not follow the chunk before it: a file was moved or replaced. Nothing of it was read. "
            f"Restore the files of this partition from a copy."
        )
