"""One conditional append without a load around it: for programs that write a log themselves."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, overload

import pyarrow as pa

from spark_cas.core.append_totals import NOTHING_SAID
from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.key_claims import check_keys
from spark_cas.core.outcome import Appended, LayoutChanged, Outcome
from spark_cas.core.plan import PartitionResult, Plan
from spark_cas.log.backend import Backend
from spark_cas.log.expanding import layout_with
from spark_cas.log.load.append_by_key import KeyedAppends
from spark_cas.log.load.append_once_records import checked_offset, chunk_of, found_before
from spark_cas.log.load.append_once_whole import append_whole
from spark_cas.log.load.planning import complete_job, job_progress, pin_plan


@overload
def append_once(
    log: Backend,
    partition: int,
    records: pa.Table,
    *,
    job: str,
    expected_offset: int | None,
    compare: Literal["partition", "key"] = "partition",
) -> Outcome: ...


@overload
def append_once(
    log: Backend, partition: Mapping[int, pa.Table], *, job: str, expected_offset: Mapping[int, int | None]
) -> dict[int, Outcome]: ...


def append_once(
    log: Backend,
    partition: int | Mapping[int, pa.Table],
    records: pa.Table | None = None,
    *,
    job: str,
    expected_offset: int | Mapping[int, int | None] | None,
    compare: Literal["partition", "key"] = "partition",
) -> Outcome | dict[int, Outcome]:
    """Append records to one partition, whole and once, at the expected offset, or leave nothing visible (KIP-27).

    ``records`` is in `spark_cas.RECORDS` and not empty; it is the whole of ``job``, whose name makes the append
    safe to ask for again: a second call with the same records finds the first and says `Appended` with
    ``resolved``. ``expected_offset`` None, or -1, asks for no check. On success go on with ``range.end_offset``.
    With ``compare="key"`` the offset is expected of the records' keys: nothing happened to any of them since.

    Given a mapping of partitions to records, and one to expected offsets, it appends **to all of them in one step, or
    to none**: then all outcomes are `Appended`; else there are those of the partitions that refused. Partitions that
    only an offset is expected of have to end there as well.

    Raises ValueError for another schema, no records, a partition that the log does not have, or records without an
    expected offset; ClaimError for an offset below -1, and where a record without a key is to expect something of it;
    InputChangedError when the job appended other records; of several partitions, OptionError where the log cannot do
    it, FencedError when others aborted it; whatever planning, claiming and appending raise.
    """
    if isinstance(partition, Mapping):
        if records is not None or not isinstance(expected_offset, Mapping) or compare != "partition":
            msg = "for several partitions append_once takes one mapping to records and one to expected offsets"
            raise ValueError(msg)
        return append_whole(log, partition, job=job, expected_offsets=expected_offset)
    if records is None or isinstance(expected_offset, Mapping):
        msg = "for one partition append_once takes its records and an expected offset"
        raise ValueError(msg)
    chunk = chunk_of(records, job)
    expected_offset = checked_offset(expected_offset)
    layout_with(log, [partition])
    wanted = ExpectedOffsets("offsets", ((partition, expected_offset),))
    plan = pin_plan(log, job, wanted, compare=compare, any_layout=True)
    # Who has just recorded the plan is the first.
    before = job_progress(log, job) if plan.rejoined else ()
    if not before:
        outcome = _append(log, plan, partition, chunk, expected_offset)
        if outcome is not None and not isinstance(outcome, LayoutChanged):
            return outcome
        # Another call came in between, or may have before partitions were added.
        before = job_progress(log, job, proven=True)
        if outcome is not None and not before:
            return outcome
    return found_before(log, plan, before, {partition: chunk})[partition]


def _append(log: Backend, plan: Plan, partition: int, chunk: Chunk, expected_offset: int | None) -> Outcome | None:
    """None where another call has appended."""
    claim = log.claim(partition, plan)
    if not isinstance(claim, Claim):
        return claim
    if claim.progress is not None:
        return None
    if plan.by_key and expected_offset is not None:
        claims = pa.repeat(pa.scalar(expected_offset, pa.int64()), chunk.records.num_rows)
        check_keys(chunk.records.column("key").combine_chunks(), claims, 0)
        chunk = replace(chunk, claims=claims)
    if plan.by_key:
        outcome, claim = KeyedAppends(log, claim.partition).append(claim, chunk)
    else:
        outcome = log.append(claim, chunk)
    if isinstance(outcome, Appended):
        progress = claim.progress_after(chunk, outcome.range)
        result = PartitionResult(progress, 0, int(outcome.resolved), NOTHING_SAID.and_then(outcome))
        complete_job(log, plan, (result,))
    return outcome
