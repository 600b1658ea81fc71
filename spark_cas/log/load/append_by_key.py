"""The appends of one writer to a partition. Conditions by key are built on the conditional append of any backend.

By key, the writer reads the records from the lowest expected offset to the end, and appends the chunk exactly at that
end. If another writer appends in between, the append fails with a Conflict. The writer then checks the new records
and retries.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.errors import TrimmedError
from spark_cas.core.offsets import Bounds, OffsetRange, outside
from spark_cas.core.outcome import Appended, Conflict, Fenced, KeyConflict, Outcome, Truncated, error_of, not_appended
from spark_cas.core.plan import Plan
from spark_cas.core.row_claims import KeyClaims
from spark_cas.log import clock
from spark_cas.log.backend import Backend
from spark_cas.log.load.attempts import rival_tries

_MOST_BYTES = 16 * 1024 * 1024
"""The maximum size of the cached keys, in bytes. Above it, each chunk reads the records again."""


class PartitionAppends:
    """The appends of one writer to one partition. By key, they share a cache of the records read."""

    def __init__(self, log: Backend, partition: int) -> None:
        self._log = log
        self._partition = partition
        self._tail = _Tail(log, partition)

    def claim(self, plan: Plan) -> Claim:
        """Claim the partition. Raises the errors of a rejected claim."""
        claim = self._log.claim(self._partition, plan)
        if not isinstance(claim, Claim):
            raise error_of(claim, self._partition)
        return claim

    def append(self, claim: Claim, chunk: Chunk) -> tuple[Outcome, Claim]:
        """Append a chunk, or leave none of it visible. Return the outcome, and the claim for the next append.

        By key, the expected offset of a row matches if no other job's record of its key is at or above it. Records of
        other keys never cause a rejection. The outcome is KeyConflict with the first row that does not match. It is
        Fenced if another writer of the same job may have appended that record.

        Raises:
            StorageError: Other writers appended first in each of the attempts of `rival_tries`. No row is visible.
        """
        if not claim.plan.by_key or chunk.records.num_rows == 0:
            return self._log.append(claim, chunk), claim
        own = claim.progress.own_ranges if claim.progress else ()
        own_end = own[-1][1] if own else None
        claims = None if chunk.claims is None else KeyClaims(chunk)
        bounds, conflicts = Bounds(0, 0), 0
        cause = overtaken = "other writers were faster each time, though with other keys"
        for _ in rival_tries():
            try:
                least = max(self._tail.end_offset, claims.highest if claims else 0)
                (bounds,) = self._log.bounds_of([self._partition], waiting=True, at_least=[least])
                refusal = self._refusal(claim.plan, claims, bounds, own)
            except (TrimmedError, ValueError):
                if self._log.bounds(self._partition).start_offset == bounds.start_offset:
                    raise
                cause = "the log was trimmed during each read"
                continue
            if refusal is not None:
                return self._overtaken(claim) or refusal, claim
            free_since = own_end if own_end is not None and self._tail.free_since(own_end) else None
            ours = replace(claim, expected_offset=bounds.end_offset, free_since=free_since)
            outcome = self._log.append(ours, replace(chunk, claims=None))
            if isinstance(outcome, Appended):
                outcome = replace(outcome, attempts=outcome.attempts + conflicts)
            if not isinstance(outcome, Conflict):
                return outcome, replace(ours, expected_offset=claim.expected_offset)
            conflicts += 1
            cause = overtaken
        raise not_appended(self._partition, cause)

    def _refusal(
        self, plan: Plan, claims: KeyClaims | None, bounds: Bounds, own: Sequence[tuple[int, int]]
    ) -> KeyConflict | Truncated | None:
        """Read the new records up to the end, and return the rejection of the chunk, None if it matches.

        Raises TrimmedError or ValueError if the bounds changed during the read. Then retry with new bounds.
        """
        at, end = self._partition, bounds.end_offset
        if end < self._tail.end_offset:
            return Truncated(self._tail.end_offset, end)
        lowest = claims.lowest if claims else end
        for base, keys in self._tail.others(min(lowest, own[-1][1] if own else end), bounds, own):
            if claims:
                claims.see(base, keys)
        if claims is None:
            return None
        unproven = 0
        if lowest < end:
            # Compute this after the read, because compaction may remove deletions during the read.
            known = {"pinned_at_ms": plan.pinned_at_ms, "pinned_end": plan.end_offsets[at]}
            unproven = self._log.unproven_below(at, end, clock.now_ms(), **known)
        return claims.violated(max(unproven, self._tail.trimmed_below), end)

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


class _Tail:
    """A cache of the keys of other writers' records, from the lowest requested offset to an end that increases.

    It reads each record once while the cache is small.
    """

    def __init__(self, log: Backend, partition: int) -> None:
        self._log = log
        self._partition = partition
        self._kept: list[tuple[int, pa.Array]] = []
        self._known: OffsetRange | None = None
        self._others_end = 0
        self.end_offset = 0
        """The end of the offsets read so far."""
        self.trimmed_below = 0
        """The log may have trimmed records below this offset before this object read them."""

    def free_since(self, offset: int) -> bool:
        """Return whether other writers have no record from an offset to the end read so far."""
        return self._known is not None and self._known.base_offset <= offset and self._others_end <= offset

    def others(self, since: int, bounds: Bounds, own: Sequence[tuple[int, int]]) -> Iterator[tuple[int, pa.Array]]:
        """Yield the keys of other writers' records from an offset to the end, as (first offset, keys).

        The result may also contain records before that offset. The ranges in ``own``, of the job's own records, are
        skipped.

        Raises:
            TrimmedError: The log trimmed records after the caller read ``bounds``; retry with new bounds.
            ValueError: The range is not within the current bounds any more; retry with new bounds.
        """
        if sum(keys.nbytes for _, keys in self._kept) > _MOST_BYTES:
            self._kept, self._known = [], None
        yield from list(self._kept)
        for unseen in self._unseen(since, bounds.end_offset):
            if unseen.base_offset < bounds.start_offset:
                self.trimmed_below = max(self.trimmed_below, min(unseen.end_offset, bounds.start_offset))
            there = unseen.intersect(bounds.range)
            for piece in outside(there, own) if there else ():
                yield from self._read(piece)
            # The range is adjacent to the known one.
            known = unseen if self._known is None else self._known
            self._known = OffsetRange(
                min(known.base_offset, unseen.base_offset), max(known.end_offset, unseen.end_offset)
            )
        self.end_offset = bounds.end_offset

    def _unseen(self, since: int, end_offset: int) -> list[OffsetRange]:
        """Return the ranges that are not read yet, from ``since`` to the end."""
        if self._known is None:
            return [OffsetRange(min(since, end_offset), end_offset)]
        before = [OffsetRange(since, self._known.base_offset)] if since < self._known.base_offset else []
        return [*before, OffsetRange(self._known.end_offset, max(end_offset, self._known.end_offset))]

    def _read(self, piece: OffsetRange) -> Iterator[tuple[int, pa.Array]]:
        for base, records in self._log.read(self._partition, piece, ("key",)):
            keys = records.column("key")
            self._kept.append((base, keys))
            self._others_end = max(self._others_end, base + len(keys))
            yield base, keys
