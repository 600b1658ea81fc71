"""Helpers that write to a log and read all of it, for tests."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.digest import RunningDigest
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.outcome import Appended, Outcome
from spark_cas.core.plan import Plan, Progress
from spark_cas.core.records import RECORDS
from spark_cas.log.backend import Backend

TIME_MS = 1_700_000_000_000
"""Timestamp of chunks in tests, in milliseconds since 1970."""

_FOREIGN = itertools.count(1)


def table_of(values: Iterable[str]) -> pa.Table:
    """Return records with these texts as key and value."""
    rows = [{"key": value.encode(), "value": value.encode()} for value in values]
    return pa.Table.from_pylist(rows, schema=RECORDS)


def values_in(log: Backend, partition: int) -> list[str]:
    """Return the values of all records in a partition."""
    return [row["value"].decode() for _, row in records_in(log, partition)]


def records_in(log: Backend, partition: int) -> list[tuple[int, dict[str, Any]]]:
    """Return all records of a partition as (offset, record)."""
    return [
        (base + at, row)
        for base, records in log.read(partition, log.bounds(partition).range)
        for at, row in enumerate(records.to_pylist())
    ]


def without_end(progress: Progress | None) -> Progress | None:
    """Return a ledger entry without its end offset, which may include offsets without records."""
    return None if progress is None else replace(progress, end_offset=progress.base_offset)


def plan_of(log: Backend, job: str, expected: str = "end") -> Plan:
    """Return a plan like that of ``pin_plan``, but do not record it. ``expected`` is a value of expectedOffsets."""
    layout = log.layout()
    ends = tuple(log.bounds(partition).end_offset for partition in range(layout.partitions))
    return Plan(job, layout.log_id, layout.epoch, ExpectedOffsets.parse(expected).resolve(ends), ends)


def claim_of(log: Backend, partition: int, plan: Plan) -> Claim:
    """Claim a partition and require that the claim succeeds."""
    claim = log.claim(partition, plan)
    assert isinstance(claim, Claim), claim
    return claim


class JobWriter:
    """Write one job to one partition, chunk by chunk, and return each outcome.

    A writer that takes over from another knows its row count but not its rows, so the digests are not real.
    """

    def __init__(self, log: Backend, plan: Plan, partition: int = 0, task: str = "run/0") -> None:
        self.claim = claim_of(log, partition, plan)
        self._log = log
        self._task = task
        self._tables: list[pa.Table] = []

    def chunk(self, records: pa.Table, *, complete: bool = False, claims: Sequence[int | None] = ()) -> Chunk:
        """Return the next chunk. ``claims`` are the expected offsets of its rows."""
        digest = RunningDigest()
        for table in (*self._tables, records):
            for batch in table.to_batches():
                digest.update(batch)
        rows = records.num_rows + (self.claim.progress.rows if self.claim.progress else 0)
        each = pa.array(claims, pa.int64()) if claims else None
        return Chunk(records, rows, digest.hexdigest(), complete, self._task, TIME_MS, claims=each)

    def append(self, records: pa.Table, *, complete: bool = False, claims: Sequence[int | None] = ()) -> Outcome:
        """Try to append a chunk once. After a success, the next chunk follows it."""
        chunk = self.chunk(records, complete=complete, claims=claims)
        outcome = self._log.append(self.claim, chunk)
        if isinstance(outcome, Appended):
            self._tables.append(records)
            self.claim = self.claim.after(chunk, outcome.range)
        return outcome

    def must_append(self, *values: str, complete: bool = False) -> Appended:
        """Append records and require success."""
        outcome = self.append(table_of(values), complete=complete)
        assert isinstance(outcome, Appended), outcome
        return outcome


def append_foreign(log: Backend, partition: int, *values: str) -> Appended:
    """Append one chunk at the end as another job."""
    plan = plan_of(log, f"foreign-{next(_FOREIGN)}")
    return JobWriter(log, plan, partition, task="foreign/0").must_append(*values, complete=True)
