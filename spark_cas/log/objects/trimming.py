"""Trimming: the new start is recorded before the first chunk goes, and beside it which chunks were there.

The record lets a writer tell, when its chunk lies below the start, whether it was in the log in time or came
so late that it got a name that trimming had freed.
"""

from spark_cas.core.errors import ChunkDamagedError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.log.objects import documents, paths
from spark_cas.log.objects.chunk_file import ChunkId, StoredChunk
from spark_cas.log.objects.first_writer_wins import put_once
from spark_cas.log.objects.partition import PartitionChunks
from spark_cas.log.objects.retry import RetryingStore
from spark_cas.log.objects.store import Store
from spark_cas.log.patience import within

_REMEMBERED = 32
"""How many of the chunks before a start are recorded with it, and how many starts are kept."""


def trim(store: RetryingStore, chunks: PartitionChunks, before_offset: int) -> Bounds:
    """Let go of the chunks that lie wholly below an offset, all but the newest."""
    with within(store.patience_seconds):
        bounds, _ = chunks.find_end(by_listing=True)  # A damaged chunk on the way from a hint must not forbid it.
        Bounds(0, bounds.end_offset).require(OffsetRange(before_offset, before_offset))
        # What is undecided lies behind the end, and is nobody's newest chunk yet.
        bases = [base for base in chunks.base_offsets() if base < bounds.end_offset]
        keep_from = max((base for base in bases if base <= before_offset), default=0)
        if keep_from > bounds.start_offset:
            trimmed = [[each.base_offset, each.checksum] for each in _chain_before(chunks, keep_from)]
            document = documents.encode({"start_offset": keep_from, "trimmed": trimmed})
            put_once(store, paths.start(chunks.number, keep_from), document)
        start = chunks.start_offset()
    # Each by itself: removing many takes long where nothing is amiss.
    store.delete([paths.chunk(chunks.number, base) for base in bases if base < start])
    store.delete(store.below(paths.starts(chunks.number))[:-_REMEMBERED])
    return Bounds(start, bounds.end_offset)


def was_in_log(store: Store, chunks: PartitionChunks, stored: StoredChunk) -> bool | None:
    """Whether a chunk that lies below the start was ever in the log; None when that cannot be told any more."""
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
    """The chunks that lead to one, newest first, each as the one after it names it, as far as they can be read."""
    chain: list[ChunkId] = []
    try:
        chunk = chunks.chunk_at(base_offset)
        while chunk and chunk.header.previous and len(chain) < _REMEMBERED:
            chain.append(chunk.header.previous)
            chunk = chunks.chunk_at(chain[-1].base_offset)
            if chunk and chunk.id != chain[-1]:
                break
    except ChunkDamagedError:
        pass  # Trimming is the way past a damaged chunk.
    return chain
