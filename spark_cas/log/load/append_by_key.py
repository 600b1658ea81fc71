"""Appending where nothing happened to the keys: above any backend, by its conditional append.

The tail is looked through from the smallest claim to the end, and the chunk is appended just there, or not at all.
Whoever comes in between makes that a conflict of the partition: then what came is looked through as well.
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
from spark_cas.log.load.second_look import looked_again
from spark_cas.log.load.tail import Tail
from spark_cas.log.tombstones import unproven_below


class KeyedAppends:
    """The appends by key of one writer to one partition, which knows what it saw for the chunks before."""

    def __init__(self, log: Backend, partition: int) -> None:
        self._log = log
        self._partition = partition
        self._tail = Tail(log, partition)

    def append(self, claim: Claim, chunk: Chunk) -> tuple[Outcome, Claim]:
        """Append a chunk whose claims are about the keys of its rows, or leave nothing of it visible.

        A row's claim holds when no record of its key lies at or behind it, but for those of the same job. Refused
        with KeyConflict naming the first row for which it does not, with Fenced where that may be the work of another
        writer of the job. Records of other keys refuse nothing. The claim that is returned with an `Appended` is the
        one that what follows rests on.

        Raises StorageError after as many tries as `rival_tries` allows in which others were faster, with nothing of
        the chunk visible; and what reading and appending raise.
        """
        look = _Look(self._log, self._tail, claim, chunk)
        cause = "other writers were faster each time, though with other keys"
        conflicts = 0
        for _ in rival_tries():
            try:
                refusal = look.refusal()
            except (TrimmedError, ValueError):
                if self._log.bounds(self._partition).start_offset == look.bounds.start_offset:
                    raise
                cause = "each time what was to be read had just been trimmed"
                continue
            if refusal is not None:
                return self._overtaken(claim) or refusal, claim
            ours = replace(claim, expected_offset=look.bounds.end_offset, free_since=look.free_since)
            outcome = self._log.append(ours, replace(chunk, claims=None))
            if isinstance(outcome, Appended):
                outcome = replace(outcome, attempts=outcome.attempts + conflicts)
            if not isinstance(outcome, Conflict):
                return outcome, replace(ours, expected_offset=claim.expected_offset)
            conflicts += 1
            cause = "other writers were faster each time, though with other keys"
        raise not_appended(self._partition, cause)

    def _overtaken(self, claim: Claim) -> Fenced | None:
        """Whether another writer of the job was at work since it was claimed: the records met may be its own.

        Where nobody was, the refusal is definite: so the ledger entry is proven.
        """
        plan, known = claim.plan, claim.progress
        (found,) = self._log.progress_of([self._partition], plan.job, plan.group, proven=True)
        if found is None or (known is not None and (found.rows, found.batch) == (known.rows, known.batch)):
            return None
        return Fenced(found.task)


class _Look:
    """What one chunk needs to know of the tail."""

    def __init__(self, log: Backend, tail: Tail, claim: Claim, chunk: Chunk) -> None:
        self._log = log
        self._tail = tail
        self._claim = claim
        self._own = claim.progress.own_ranges if claim.progress else ()
        self._claims = None if chunk.claims is None else KeyClaims(chunk)
        self.bounds = Bounds(0, 0)
        """What the partition kept at the last look."""

    @property
    def free_since(self) -> int | None:
        """The end of the job's own newest rows, when nobody's came behind it."""
        own_end = self._own[-1][1] if self._own else None
        return own_end if own_end is not None and self._tail.free_since(own_end) else None

    def refusal(self) -> KeyConflict | Truncated | None:
        """Look through what is new up to the end; the refusal of the chunk, if a claim does not hold there.

        Raises TrimmedError or ValueError when that was trimmed meanwhile: to be asked again.
        """
        at = self._claim.partition
        return looked_again(self._log, {at: self._now()}, lambda _: {at: self._now()})[at]

    def _now(self) -> KeyConflict | Truncated | None:
        bounds = self.bounds = self._log.bounds(self._claim.partition)
        end = bounds.end_offset
        if end < self._tail.end_offset:
            return Truncated(self._tail.end_offset, end)
        own_end = self._own[-1][1] if self._own else end
        lowest = self._claims.lowest if self._claims else end
        for base, keys in self._tail.others(min(lowest, own_end), bounds, self._own):
            if self._claims:
                self._claims.see(base, keys)
        if self._claims is None:
            return None
        # Only now: what was deleted before it was read must not have been removed by then.
        unproven = self._unproven_below(end) if lowest < end else 0
        return self._claims.violated(max(unproven, self._tail.trimmed_below), end)

    def _unproven_below(self, end: int) -> int:
        at, plan = self._claim.partition, self._claim.plan
        now_ms = clock.now_ms()
        pinned_end = plan.end_offsets[at]
        return unproven_below(self._log, at, end, now_ms, pinned_at_ms=plan.pinned_at_ms, pinned_end=pinned_end)
