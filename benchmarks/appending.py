"""A writer that repeatedly appends the same records, each time after its previous chunk."""

import os
import time
from collections.abc import Callable

import pyarrow as pa

from spark_cas import raise_for_outcome
from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.digest import RunningDigest
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.outcome import Appended
from spark_cas.log.backend import Backend
from spark_cas.log.load.planning import pin_plan


def appender(log: Backend, partition: int, rows: pa.Table) -> Callable[[], None]:
    """Return a function that appends ``rows`` as one chunk, and expects the end offset after its previous chunk."""
    plan = pin_plan(log, f"benchmark-{os.urandom(6).hex()}", ExpectedOffsets.parse("end"))
    locked = log.claim(partition, plan)
    if not isinstance(locked, Claim):
        raise TypeError(locked)
    claim: Claim = locked
    digest = RunningDigest()

    def append() -> None:
        nonlocal claim
        for batch in rows.to_batches():
            digest.update(batch)
        now_ms = time.time_ns() // 1_000_000
        chunk = Chunk(rows, digest.rows, digest.hexdigest(), complete=False, task="benchmark/0", time_ms=now_ms)
        outcome = log.append(claim, chunk)
        raise_for_outcome(outcome, partition)
        if isinstance(outcome, Appended):
            claim = claim.after(chunk, outcome.range)

    return append
