"""The claim of a partition: the state of its writer, and the ledger entry that each append writes."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from spark_cas.core.chunks import Chunk
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.plan import Plan, Progress
from spark_cas.core.row_claims import lowest_claim

_MOST_OWN_RANGES = 64
"""The maximum number of own ranges, because a ledger entry must stay small. If a job by key has more, its older rows
count as another writer's, which may cause a false conflict."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The state of a writer that has claimed a partition. Its next append relies on this state."""

    partition: int
    plan: Plan
    expected_offset: int | None
    """The offset that the next chunk expects; None for no check."""
    progress: Progress | None
    """The job's ledger entry; None before its first chunk."""
    end_offset: int
    """The writer knows all rows of the job below this offset."""
    free_since: int | None = None
    """For conditions by key: other writers have no record between this offset and the next chunk. None if not
    known."""

    def after(self, chunk: Chunk, at: OffsetRange) -> "Claim":
        """Return the claim after an append at these offsets. An empty range means that it only closed the job."""
        progress = self.progress_after(chunk, at)
        expected = None if self.expected_offset is None else progress.end_offset
        end_offset = max(at.end_offset, self.end_offset)
        return replace(self, expected_offset=expected, progress=progress, end_offset=end_offset, free_since=None)

    def covers(self, chunk: Chunk) -> bool:
        """Return whether a chunk leaves the ledger entry unchanged, and so only proves that the claim is current."""
        before = self.progress
        if before is None or self.plan.group or chunk.complete or chunk.records.num_rows:
            return False
        return self.progress_after(chunk, OffsetRange(before.end_offset, before.end_offset)) == before

    @property
    def least_expected(self) -> int | None:
        """The lowest offset that the next row may expect; None if the partition has no expected offset.

        All records from there to the end are rows of the job.
        """
        before = self.progress
        if self.expected_offset is None or before is None or self.expected_offset > before.end_offset:
            return self.expected_offset
        return self.expected_offset if before.least_expected is None else before.least_expected

    def allows_expected_offset(self, offset: int, nothing_since: Callable[[int], bool]) -> bool:
        """Return whether a chunk may expect an offset below the one at which it is appended.

        ``nothing_since`` returns whether no record is at or after an offset. It decides if the partition has no
        expected offset. Rows of the job do not count if no other record follows them.
        """
        if self.expected_offset is not None:
            return self.least_expected is not None and offset >= self.least_expected
        before = self.progress
        counted = before is not None and before.least_expected is not None and offset >= before.least_expected
        return nothing_since(offset) or (before is not None and counted and nothing_since(before.end_offset))

    def progress_after(self, chunk: Chunk, at: OffsetRange) -> Progress:
        before = self.progress
        closing = len(at) == 0 and before is not None
        return Progress(
            job=self.plan.job,
            partition=self.partition,
            rows=chunk.rows,
            digest=chunk.digest,
            base_offset=before.base_offset if before and before.rows else at.base_offset,
            end_offset=before.end_offset if closing and before else at.end_offset,
            chunks=(before.chunks if before else 0) + (len(at) > 0),
            layout_epoch=self.plan.layout_epoch,
            complete=chunk.complete,
            committed_at_ms=chunk.time_ms,
            task=chunk.task,
            batch=chunk.batch,
            least_expected=before.least_expected if closing and before else self._least_after(chunk, at),
            own_ranges=self._own_after(chunk, at),
        )

    def _own_after(self, chunk: Chunk, at: OffsetRange) -> tuple[tuple[int, int], ...]:
        before, count = self.progress.own_ranges if self.progress else (), chunk.records.num_rows
        if not self.plan.by_key or count == 0:
            return before
        base, end = at.base_offset, at.base_offset + count
        free_since = base if self.free_since is None else self.free_since
        if before and before[-1][1] >= min(base, free_since):
            return (*before[:-1], (before[-1][0], end))
        return (*before, (base, end))[-_MOST_OWN_RANGES:]

    def _least_after(self, chunk: Chunk, at: OffsetRange) -> int | None:
        if self.plan.by_key:
            return None
        least = self.least_expected
        if least is None and chunk.claims is not None:
            least = lowest_claim(chunk.claims, at.base_offset)
        return None if least is None else least + chunk.records.num_rows
