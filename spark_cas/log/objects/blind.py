"""An append at whatever the end is: the conditional put of an append that expects nothing, of a job of its own.

A put that would overwrite is not used here either: it would take others' chunks away. So a chunk is in the log once
even where its reply was lost; what comes twice is what is appended again.
"""

import uuid

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.offsets import Bounds
from spark_cas.core.outcome import Outcome
from spark_cas.core.plan import Layout, Plan, Progress
from spark_cas.log.objects.appending import Appender
from spark_cas.log.objects.chunk_file import StoredChunk
from spark_cas.log.objects.ledger import Ledger
from spark_cas.log.objects.partition import PartitionChunks
from spark_cas.log.objects.retry import RetryingStore

_NO_END = 2**63 - 1


class _NoLedger(Ledger):
    """Of jobs that append one chunk each, and that nobody comes back for."""

    def newer(self, job: str, known: Progress | None, unseen_from: int, bounds: Bounds) -> None:
        pass

    def closed(self, job: str, pinned_by: str) -> None:
        pass

    def appended(self, stored: StoredChunk) -> None:
        pass


def append_blind(store: RetryingStore, chunks: PartitionChunks, layout: Layout, chunk: Chunk) -> Outcome:
    """Append a chunk to a partition. Refused with LayoutChanged alone; Unknown as any append."""
    nothing = (None,) * layout.partitions
    plan = Plan(uuid.uuid4().hex, layout.log_id, layout.epoch, nothing, (0,) * layout.partitions)
    # Nothing of a job that has just got its name can be unknown, wherever the partition ends.
    claim = Claim(chunks.number, plan, expected_offset=None, progress=None, end_offset=_NO_END)
    return Appender(store, chunks, _NoLedger(store, chunks)).append(claim, chunk)
