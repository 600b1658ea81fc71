"""Reading a range of offsets: whole chunks are checked, and each must follow the one before it."""

from bisect import bisect_right
from collections.abc import Iterator

import pyarrow as pa

from spark_cas.core.errors import ChunkDamagedError
from spark_cas.core.offsets import OffsetRange
from spark_cas.log.objects import paths
from spark_cas.log.objects.chunk_file import StoredChunk, decode
from spark_cas.log.objects.partition import PartitionChunks
from spark_cas.log.objects.store import Store


def read_chunks(
    store: Store, chunks: PartitionChunks, offsets: OffsetRange, columns: tuple[str, ...]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (offset of the first, records) for a range within the partition's bounds, in order."""
    if len(offsets) == 0:
        return
    bases = chunks.base_offsets()
    at = bases[max(0, bisect_right(bases, offsets.base_offset) - 1)] if bases else offsets.base_offset
    before: StoredChunk | None = None
    while at < offsets.end_offset:
        path = paths.chunk(chunks.number, at)
        data = store.get(path)
        if data is None:
            raise ChunkDamagedError(
                f"{path}: the chunk is missing, though the log has acknowledged offset {at}. Restore the file from "
                f"a copy, or trim the log past it. (If the log was trimmed while it was read, read again.)"
            )
        stored, batches = decode(data, path, columns)
        _require_in_place(stored, before, chunks.number, at, path)
        yield from _part(batches, at, offsets)
        before, at = stored, stored.header.end_offset


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


def _require_in_place(stored: StoredChunk, before: StoredChunk | None, partition: int, at: int, path: str) -> None:
    header = stored.header
    follows = before is None or header.previous == before.id
    if (header.partition, header.base_offset) != (partition, at) or not follows:
        raise ChunkDamagedError(
            f"{path}: it does not follow the chunk before it: a file was moved or replaced. Nothing of it was read. "
            f"Restore the files of this partition from a copy."
        )
