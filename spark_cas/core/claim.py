"""The lease of a partition: what its writer knows, and what the ledger says once the next chunk is appended."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from spark_cas.core.chunks import Chunk
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.plan import Plan, Progress
from spark_cas.core.row_claims import lowest_claim

_MOST_OWN_RANGES = 64
"""A ledger entry has to stay small. What is older of a job by key counts as others': it is refused sooner."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a writer knows of a partition that it claimed: the state that its next append relies on."""

    partition: int
    plan: Plan
    expected_offset: int | None
    """What the next chunk expects; None asks for no check."""
    progress: Progress | None
    """The job's ledger entry; None before its first chunk."""
    end_offset: int
    """Below it, nothing of the job is unknown to this writer."""
    free_since: int | None = None
    """Of conditions by key: from there up to where the next chunk goes lies no record of others; None: not known."""

    def after(self, chunk: Chunk, at: OffsetRange) -> "Claim":
        """The claim for what follows ``chunk``, once it is appended ``at`` these offsets (none: job closed)."""
        progress = self.progress_after(chunk, at)
        expected = None if self.expected_offset is None else progress.end_offset
        end_offset = max(at.end_offset, self.end_offset)
        return replace(self, expected_offset=expected, progress=progress, end_offset=end_offset, free_since=None)

    def says_all_of(self, chunk: Chunk) -> bool:
        """Whether a chunk changes nothing, not even the ledger: it shows only that the claim is still the newest."""
        before = self.progress
        if before is None or self.plan.group or chunk.complete or chunk.records.num_rows:
            return False
        return self.progress_after(chunk, OffsetRange(before.end_offset, before.end_offset)) == before

    def seen_to(self, end_offset: int) -> "Claim":
        """The claim of who has read all that others appended below ``end_offset``, and goes on from there."""
        return replace(self, expected_offset=end_offset, end_offset=max(end_offset, self.end_offset))

    @property
    def least_expected(self) -> int | None:
        """The lowest offset that the next row may itself expect; None where the partition is not claimed.

        From there up to the end lie only rows of the job, which were counted, and offsets that hold no record.
        """
        before = self.progress
        if self.expected_offset is None or before is None or self.expected_offset > before.end_offset:
            return self.expected_offset
        return self.expected_offset if before.least_expected is None else before.least_expected

    def lets_expect(self, offset: int, nothing_since: Callable[[int], bool]) -> bool:
        """Whether a chunk on this claim may as well expect an offset below the one where it is appended.

        ``nothing_since`` tells of an offset whether no record lies from there on. It decides where the partition is
        not claimed; rows of the job do not count where nothing came after them.
        """
        if self.expected_offset is not None:
            return self.least_expected is not None and offset >= self.least_expected
        before = self.progress
        counted = before is not None and before.least_expected is not None and offset >= before.least_expected
        return nothing_since(offset) or (before is not None and counted and nothing_since(before.end_offset))

    def progress_after(self, chunk: Chunk, at: OffsetRange) -> Progress:
        """The ledger entry that goes with ``chunk``."""
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
