"""Read a range of offsets. The reader verifies whole chunks and checks that each follows its predecessor."""

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
    """Yield the records of a range in order, each batch with the offset of its first record.

    ``start`` is the start offset of the partition, and the range is within its bounds.

    Raises:
        TrimmedError: if a chunk was trimmed during the read
        ChunkDamagedError: if a chunk is missing, corrupt or out of place
    """
    if len(offsets) == 0:
        return
    at = _begin_of_chunk(chunks, start, offsets.base_offset)
    before: StoredChunk | None = None
    while at < offsets.end_offset:
        path = paths.chunk(chunks.number, at)
        data = store.get(path)
        if at < chunks.start_offset():
            raise TrimmedError(
                f"partition {chunks.number}: offset {at} was trimmed while it was read. Read again from its start.",
                partition=chunks.number,
            )
        if data is None:
            raise chunks.missing(at)
        stored, batches = decode(data, path, columns)
        del data  # the batches own the memory, which is released before the next chunk is read
        chunks.require_in_place(stored, at)
        if before is not None and stored.header.previous != before.id:
            raise ChunkDamagedError(
                f"{path}: it does not follow the chunk before it: a file was moved or replaced. Nothing of it was "
                f"read. Restore the files of this partition from a copy."
            )
        known = chunks.groups.visible(stored, "")
        if known is None:
            raise chunks.missing(at)  # the range ends before any uncommitted chunk
        if not is_void(known):
            yield from _part(batches, at, offsets)
        del batches  # release the batches of a skipped chunk
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
                    result = first_since(records, timestamp_ms)
                    if result is not None:
                        return base + result
            at = offsets.end_offset
        except TrimmedError:
            at = chunks.start_offset()
    return None


def _dated_chunk(chunks: PartitionChunks, at: int) -> tuple[StoredChunk, int | None]:
    """Return the chunk at an offset and its newest timestamp. Raises TrimmedError, ChunkDamagedError."""
    dated = chunks.dated_chunk_at(at)
    if dated is not None:
        return dated
    if at >= chunks.start_offset():
        raise chunks.missing(at)
    raise TrimmedError(
        f"partition {chunks.number}: offset {at} was trimmed. Read again from its start.",
        partition=chunks.number,
    )


def _begin_of_chunk(chunks: PartitionChunks, start: int, offset: int) -> int:
    """Return the base offset of the chunk that contains an offset, in a partition that begins at ``start``.

    A reader that follows the log resumes at the end of a chunk. The next chunk begins there, so no listing is
    necessary.
    """
    if offset == start or chunks.stored_at(offset) is not None:
        return offset
    bases = [base for base in chunks.base_offsets() if base >= start]
    index = bisect_right(bases, offset)
    return bases[index - 1] if index else start


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
