"""A term of leadership: a job whose claim stays, and whose chunks are the leader's batches.

There is one claim for many batches, so each costs one append. A term that was refused anything is over.
"""

import uuid

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
    """What a leader appends to its shard, one batch after the other."""

    def __init__(self, log: Backend, claim: Claim, address: str) -> None:
        self._log = log
        self._address = address
        self._digest = RunningDigest()
        self._claim = claim

    def seen_to(self, end_offset: int) -> None:
        """All that others appended below this offset was applied: the next batch is expected there."""
        self._claim = self._claim.seen_to(end_offset)

    def append(self, records: pa.Table) -> Outcome:
        """Append a batch whole, where the one before it ended. Raises as `Log.append`."""
        chunk = term_chunk(records, self._address, self._digest)
        outcome = self._log.append(self._claim, chunk)
        if isinstance(outcome, Appended):
            self._claim = self._claim.after(chunk, outcome.range)
        return outcome

    def prove(self) -> Outcome:
        """Show that nobody claimed the shard since, where claims can be fenced: an append that moves no offset.

        Brokers commit it together, where an end is what one of them tells. Elsewhere a claim is advice, and the end
        has to be looked at as well.
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
            # As in the entry that is there, so that the claim stays as it is.
            time_ms=before.committed_at_ms,
        )
        return self._log.append(self._claim, chunk)


def begin_term(log: Backend, layout: Layout, shard: int, address: str, upcoming_offset: int) -> Term | Refusal:
    """Claim a shard for a new term; refused as `Log.claim` does. What was appended meanwhile is applied next.

    Raises as `Log.claim`.
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
    """Records as the next chunk of a job whose rows before them were hashed by ``digest``, which goes on."""
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
