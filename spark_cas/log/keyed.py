"""Appending where nothing happened to the keys: above any backend, by its conditional append.

The tail is looked through from the smallest claim to the end, and the chunk is appended just there, or not at all.
Whoever comes in between makes that a conflict of the partition: then what came is looked through as well.
"""

import time
from dataclasses import replace

from spark_cas.core.chunks import Chunk
from spark_cas.core.errors import TrimmedError
from spark_cas.core.key_claims import KeyClaims
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Conflict, Outcome, Truncated, Unknown
from spark_cas.log.protocol import Backend, Claim
from spark_cas.log.rivals import rival_tries


def append_by_key(log: Backend, claim: Claim, chunk: Chunk) -> Outcome:
    """Append a chunk whose claims are about the keys of its rows, or leave nothing of it visible.

    A row's claim holds when no record of its key lies at or behind it, but for those of the same job. Refused with
    KeyConflict naming the first row for which it does not. Records of other keys refuse nothing; after as many tries
    as `rival_tries` allows in which others were faster, it is Unknown. Raises what reading and appending raise.
    """
    tail = _Tail(log, claim, chunk)
    for _ in rival_tries():
        try:
            bounds = log.bounds(claim.partition)
            refusal = tail.look(bounds)
            if isinstance(refusal, Truncated):
                # Said only after a second reading.
                bounds = log.bounds(claim.partition)
                refusal = tail.look(bounds)
        except (TrimmedError, ValueError):
            continue  # Trimmed since the bounds were read: what may be read now begins later.
        if refusal is not None:
            return refusal
        outcome = log.append(replace(claim, expected_offset=bounds.end_offset), replace(chunk, claims=None))
        if not isinstance(outcome, Conflict):
            return outcome
    return Unknown("other writers were faster each time, though with other keys")


class _Tail:
    """What was seen of the log's end, for the claims of one chunk."""

    def __init__(self, log: Backend, claim: Claim, chunk: Chunk) -> None:
        self._log = log
        self._partition = claim.partition
        self._own = claim.progress.own_ranges if claim.progress else ()
        self._claims = None if chunk.claims is None else KeyClaims(chunk)
        self._seen = self._claims.lowest if self._claims else 0
        self._unproven_below: int | None = None

    def look(self, bounds: Bounds) -> Outcome | None:
        """Look through what is new up to the end; the refusal of the chunk, if a claim does not hold there.

        Raises TrimmedError or ValueError when that was trimmed meanwhile: to be asked again.
        """
        if self._claims is None:
            return None
        end = bounds.end_offset
        if self._unproven_below is None:
            self._unproven_below = self._deletions_unproven_below(end) if self._seen < end else 0
        if bounds.start_offset > self._seen:
            self._unproven_below = max(self._unproven_below, bounds.start_offset)
        unseen = OffsetRange(min(max(self._seen, bounds.start_offset), end), end)
        for base, records in self._log.read(self._partition, unseen, ("key",)) if len(unseen) else ():
            self._claims.see(base, records.column("key"), self._own)
        self._seen = max(self._seen, end)
        return self._claims.violated(self._unproven_below, end)

    def _deletions_unproven_below(self, end: int) -> int:
        """Below which offset a claim may be so old that a key's deletion, made since, was itself removed.

        A record that is young enough, in front of the claim, shows that the claim is.
        """
        kept_ms = self._log.tombstones_kept_ms()
        if kept_ms is None:
            return 0
        young = self._log.offset_since(self._partition, time.time_ns() // 1_000_000 - kept_ms // 2)
        return end if young is None else young + 1
