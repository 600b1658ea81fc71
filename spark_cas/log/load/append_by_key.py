"""Appends with conditions by key, on the conditional append of any backend.

The writer reads the records from the lowest expected offset to the end, and appends the chunk exactly at that end. If
another writer appends in between, the append fails with a Conflict. The writer then checks the new records and
retries.
"""

from dataclasses import replace

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.errors import TrimmedError
from spark_cas.core.key_claims import KeyClaims
from spark_cas.core.offsets import Bounds
from spark_cas.core.outcome import Appended, Conflict, Fenced, KeyConflict, Outcome, Truncated
from spark_cas.core.refusal import not_appended
from spark_cas.log import clock
from spark_cas.log.backend import Backend
from spark_cas.log.load.attempts import rival_tries
from spark_cas.log.load.tail import Tail


class KeyedAppends:
    """The appends by key of one writer to one partition, which share a cache of the records read."""

    def __init__(self, log: Backend, partition: int) -> None:
        self._log = log
        self._partition = partition
        self._tail = Tail(log, partition)

    def append(self, claim: Claim, chunk: Chunk) -> tuple[Outcome, Claim]:
        """Append a chunk with expected offsets for the keys of its rows, or leave none of it visible.

        The expected offset of a row matches if no other job's record of its key is at or above it. Records of other
        keys never cause a rejection.

        Args:
            claim: The claim of the partition.
            chunk: The chunk to append.

        Returns:
            The outcome, and the claim for the next append. The outcome is KeyConflict with the first row that does
                not match. It is Fenced if another writer of the same job may have appended that record.

        Raises:
            StorageError: Other writers appended first in each of the attempts of `rival_tries`. No row is visible.
            ConditionalLogError: The errors of reads and appends.
        """
        read = _TailRead(self._log, self._tail, claim, chunk)
        cause = "other writers were faster each time, though with other keys"
        conflicts = 0
        for _ in rival_tries():
            try:
                refusal = read.refusal()
            except (TrimmedError, ValueError):
                if self._log.bounds(self._partition).start_offset == read.bounds.start_offset:
                    raise
                cause = "the log was trimmed during each read"
                continue
            if refusal is not None:
                return self._overtaken(claim) or refusal, claim
            ours = replace(claim, expected_offset=read.bounds.end_offset, free_since=read.free_since)
            outcome = self._log.append(ours, replace(chunk, claims=None))
            if isinstance(outcome, Appended):
                outcome = replace(outcome, attempts=outcome.attempts + conflicts)
            if not isinstance(outcome, Conflict):
                return outcome, replace(ours, expected_offset=claim.expected_offset)
            conflicts += 1
            cause = "other writers were faster each time, though with other keys"
        raise not_appended(self._partition, cause)

    def _overtaken(self, claim: Claim) -> Fenced | None:
        """Return Fenced if another writer of the job has appended since the claim; None otherwise.

        That writer may have appended the conflicting record. If there is none, the rejection is definite, so the
        ledger entry must be proven.
        """
        plan, known = claim.plan, claim.progress
        (result,) = self._log.progress_of([self._partition], plan.job, plan.group, proven=True)
        if result is None or (known is not None and (result.rows, result.batch) == (known.rows, known.batch)):
            return None
        return Fenced(result.task)


class _TailRead:
    """The check of one chunk against the records at the end of the partition."""

    def __init__(self, log: Backend, tail: Tail, claim: Claim, chunk: Chunk) -> None:
        self._log = log
        self._tail = tail
        self._claim = claim
        self._own = claim.progress.own_ranges if claim.progress else ()
        self._claims = None if chunk.claims is None else KeyClaims(chunk)
        self.bounds = Bounds(0, 0)
        """The start and end offset of the partition at the last read."""

    @property
    def free_since(self) -> int | None:
        """The end of the job's own newest rows, if no other record follows them; else None."""
        own_end = self._own[-1][1] if self._own else None
        return own_end if own_end is not None and self._tail.free_since(own_end) else None

    def refusal(self) -> KeyConflict | Truncated | None:
        """Read the new records up to the end, and return the rejection of the chunk, None if it matches.

        Raises:
            TrimmedError: The log trimmed records during the read; retry.
            ValueError: The bounds changed during the read; retry.
        """
        least = max(self._tail.end_offset, self._claims.highest if self._claims else 0)
        (bounds,) = self._log.bounds_of([self._claim.partition], waiting=True, at_least=[least])
        self.bounds, end = bounds, bounds.end_offset
        if end < self._tail.end_offset:
            return Truncated(self._tail.end_offset, end)
        own_end = self._own[-1][1] if self._own else end
        lowest = self._claims.lowest if self._claims else end
        for base, keys in self._tail.others(min(lowest, own_end), bounds, self._own):
            if self._claims:
                self._claims.see(base, keys)
        if self._claims is None:
            return None
        # Compute this after the read, because compaction may remove deletions during the read.
        unproven = self._unproven_below(end) if lowest < end else 0
        return self._claims.violated(max(unproven, self._tail.trimmed_below), end)

    def _unproven_below(self, end: int) -> int:
        at, plan = self._claim.partition, self._claim.plan
        now_ms = clock.now_ms()
        pinned_end = plan.end_offsets[at]
        return self._log.unproven_below(at, end, now_ms, pinned_at_ms=plan.pinned_at_ms, pinned_end=pinned_end)
