"""Trimming: record the new start offset and the last chunks before it, then delete the chunks below it.

If a writer's chunk is below the start, the record shows whether the chunk was part of the log. A late writer may have
reused a name that trimming had freed.
"""

from spark_cas.core.errors import ChunkDamagedError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.log.deadline import within
from spark_cas.log.objects import documents, paths
from spark_cas.log.objects.chunk_file import ChunkId, StoredChunk
from spark_cas.log.objects.first_writer_wins import put_once
from spark_cas.log.objects.partition import PartitionChunks
from spark_cas.log.objects.retry import RetryingStore
from spark_cas.log.objects.store import Store

_REMEMBERED = 32
"""Number of chunks that are recorded before a start, and number of starts that are kept."""


def trim(store: RetryingStore, chunks: PartitionChunks, before_offset: int, *, dry_run: bool = False) -> Bounds:
    """Delete the chunks that end at or before an offset, except the newest chunk.

    Args:
        store: the store
        chunks: the partition
        before_offset: the offset below which to trim
        dry_run: whether to change nothing

    Returns:
        the new bounds

    Raises:
        ValueError: if the offset is negative or past the end
        StorageError: if the store fails until the deadline
    """
    with within(store.patience_seconds):
        bounds, _ = chunks.find_end(by_listing=True)  # a walk would fail at a damaged chunk
        Bounds(0, bounds.end_offset).require(OffsetRange(before_offset, before_offset))
        # Uncommitted chunks are after the end and do not count as the newest chunk.
        bases = [base for base in chunks.base_offsets() if base < bounds.end_offset]
        keep_from = max((base for base in bases if base <= before_offset), default=0)
        if dry_run:
            return Bounds(max(keep_from, bounds.start_offset), bounds.end_offset)
        if keep_from > bounds.start_offset:
            trimmed = [[each.base_offset, each.checksum] for each in _chain_before(chunks, keep_from)]
            document = documents.encode({"start_offset": keep_from, "trimmed": trimmed})
            put_once(store, paths.start(chunks.number, keep_from), document)
        start = chunks.start_offset()
    # Each delete has its own deadline, because many deletes take long.
    store.delete([paths.chunk(chunks.number, base) for base in bases if base < start])
    store.delete(store.below(paths.starts(chunks.number))[:-_REMEMBERED])
    return Bounds(start, bounds.end_offset)


def was_in_log(store: Store, chunks: PartitionChunks, stored: StoredChunk) -> bool | None:
    """Return whether a chunk below the start was ever part of the log; None if that is no longer known."""
    base = stored.header.base_offset
    answer = None
    for path in store.below(paths.starts(chunks.number), after=paths.start(chunks.number, base)):
        data = store.get(path)
        if data is None:
            continue
        trimmed = [ChunkId(*each) for each in documents.decode(data, path)["trimmed"]]
        if stored.id in trimmed:
            return True
        if any(each.base_offset <= base for each in trimmed):
            answer = False
    return answer


def _chain_before(chunks: PartitionChunks, base_offset: int) -> list[ChunkId]:
    """Return the chunks before one, newest first, as far as they are readable. Each id is from the chunk after it."""
    chain: list[ChunkId] = []
    try:
        chunk = chunks.chunk_at(base_offset)
        while chunk and chunk.header.previous and len(chain) < _REMEMBERED:
            chain.append(chunk.header.previous)
            chunk = chunks.chunk_at(chain[-1].base_offset)
            if chunk and chunk.id != chain[-1]:
                break
    except ChunkDamagedError:
        pass  # Trimming must also work past a damaged chunk.
    return chain
