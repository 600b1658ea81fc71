"""A term of leadership: a job that keeps its claim, and appends each batch of the leader as a chunk.

One claim serves many batches, so a batch costs one append. A term ends with its first rejected append.
"""

import uuid
from dataclasses import replace

import pyarrow as pa

from spark_cas import RECORDS
from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.digest import RunningDigest
from spark_cas.core.outcome import Appended, Outcome, Refusal
from spark_cas.core.plan import Layout, Plan
from spark_cas.log import clock
from spark_cas.log.backend import Backend


class Term:
    """The appends of a leader to its shard, one batch after the other."""

    def __init__(self, log: Backend, claim: Claim, address: str) -> None:
        self._log = log
        self._address = address
        self._digest = RunningDigest()
        self._claim = claim

    def advance_to(self, end_offset: int) -> None:
        """Expect the next batch at this offset, after the node has applied all records of other writers below it."""
        known = max(end_offset, self._claim.end_offset)
        self._claim = replace(self._claim, expected_offset=end_offset, end_offset=known)

    def append(self, records: pa.Table) -> Outcome:
        """Append a batch atomically at the end of the previous one. Raises the errors of `Log.append`."""
        chunk = term_chunk(records, self._address, self._digest)
        outcome = self._log.append(self._claim, chunk)
        if isinstance(outcome, Appended):
            self._claim = self._claim.after(chunk, outcome.range)
        return outcome

    def prove(self) -> Outcome:
        """Verify that no other node has claimed the shard since, with an append that adds no record.

        This is a proof only if the log can fence claims. There, the brokers commit the empty append together, but a
        single broker reports an end offset and may be stale. In other logs claims are advisory, and the caller also
        has to check the end offset.
        """
        before = self._claim.progress
        if before is None:
            msg = "a term begins with its leader record"
            raise AssertionError(msg)
        chunk = Chunk(
            records=RECORDS.empty_table(),
            rows=before.rows,
            digest=before.digest,
            complete=False,
            task=before.task,
            # The time of the existing ledger entry, so that the claim does not change.
            time_ms=before.committed_at_ms,
        )
        return self._log.append(self._claim, chunk)


def begin_term(log: Backend, layout: Layout, shard: int, address: str, upcoming_offset: int) -> Term | Refusal:
    """Claim a shard for a new term, or return the rejection of `Log.claim`.

    The caller then applies the records that other writers appended before the claim. Raises the errors of
    `Log.claim`.
    """
    plan = Plan(
        job=f"kv-{shard}-{uuid.uuid4().hex[:12]}",
        log_id=layout.log_id,
        layout_epoch=layout.epoch,
        expected_offsets=tuple(upcoming_offset if each == shard else None for each in range(layout.partitions)),
        end_offsets=tuple(upcoming_offset if each == shard else 0 for each in range(layout.partitions)),
    )
    claim = log.claim(shard, plan)
    return Term(log, claim, address) if isinstance(claim, Claim) else claim


def term_chunk(records: pa.Table, address: str, digest: RunningDigest) -> Chunk:
    """Return records as the next chunk of a job, and update ``digest``, which covers the rows before them."""
    for batch in records.to_batches():
        digest.update(batch)
    return Chunk(
        records=records,
        rows=digest.rows,
        digest=digest.hexdigest(),
        complete=False,
        task=address,
        time_ms=clock.now_ms(),
    )
