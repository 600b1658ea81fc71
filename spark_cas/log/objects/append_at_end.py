"""Append a chunk at the current end without an expected offset, as a job of its own.

This module does not overwrite objects, because that could replace chunks of other writers. If the store loses a
reply, the chunk is still stored once. If the caller repeats the append, the rows are stored twice.
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
    """A ledger for jobs that append one chunk each and never resume."""

    def newer(self, job: str, known: Progress | None, unseen_from: int, bounds: Bounds) -> None:
        pass

    def closed(self, job: str, pinned_by: str) -> None:
        pass

    def appended(self, stored: StoredChunk) -> None:
        pass


def append_blind(store: RetryingStore, chunks: PartitionChunks, layout: Layout, chunk: Chunk) -> Outcome:
    """Append a chunk to a partition without an expected offset.

    Returns:
        the outcome of the append; LayoutChanged is the only rejection
    """
    nothing = (None,) * layout.partitions
    plan = Plan(uuid.uuid4().hex, layout.log_id, layout.epoch, nothing, (0,) * layout.partitions)
    # A new job name has no earlier progress at any end offset.
    claim = Claim(chunks.number, plan, expected_offset=None, progress=None, end_offset=_NO_END)
    return Appender(store, chunks, _NoLedger(store, chunks)).append(claim, chunk)
