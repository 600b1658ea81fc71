"""A single conditional append without a load, for programs that write to a log directly."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, overload

import pyarrow as pa

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.outcome import NO_TOTALS, Appended, LayoutChanged, Outcome
from spark_cas.core.plan import PartitionResult, Plan
from spark_cas.core.row_claims import check_keys
from spark_cas.log.backend import Backend
from spark_cas.log.expanding import layout_with
from spark_cas.log.load.append_by_key import KeyedAppends
from spark_cas.log.load.append_once_atomic import append_whole
from spark_cas.log.load.append_once_records import checked_offset, chunk_of, existing_result
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
    """Append records to one partition atomically and exactly once at the expected offset (KIP-27).

    The records are all rows of ``job``. The job name makes the call safe to retry: a second call with the same
    records finds the first append, and returns `Appended` with ``resolved``. After success, the next append expects
    ``range.end_offset``.

    With mappings, the call appends **to all partitions atomically, or to none**. All outcomes are then `Appended`, or
    the result has the outcomes of the partitions that rejected it. A partition with an expected offset but no records
    must also end at that offset.

    Args:
        log: The log.
        partition: The partition, or a mapping from partitions to their records.
        records: The records of the one partition, in the schema `spark_cas.RECORDS`, at least one.
        job: The unique name of this append.
        expected_offset: The expected end offset; None or -1 for no check. With several partitions, a mapping.
        compare: With ``key``, no record of the records' keys may have an offset at or above the expected one.

    Returns:
        The outcome; with mappings, outcomes by partition.

    Raises:
        ValueError: The schema is wrong, there are no records, the log lacks a partition, or a partition has records
            but no expected offset.
        ExpectedOffsetError: An expected offset is below -1, or a record without a key has one with ``compare="key"``.
        InputChangedError: The job appended other records before.
        OptionError: The log cannot append to several partitions atomically.
        FencedError: Another process aborted the append to several partitions.
        ConditionalLogError: The errors of plans, claims and appends.
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
    # The call that recorded the plan is the first one.
    before = job_progress(log, job) if plan.rejoined else ()
    if not before:
        outcome = _append(log, plan, partition, chunk, expected_offset)
        if outcome is not None and not isinstance(outcome, LayoutChanged):
            return outcome
        # A concurrent call may have appended, or an earlier one before an expansion.
        before = job_progress(log, job, proven=True)
        if outcome is not None and not before:
            return outcome
    return existing_result(log, plan, before, {partition: chunk})[partition]


def _append(log: Backend, plan: Plan, partition: int, chunk: Chunk, expected_offset: int | None) -> Outcome | None:
    """Append the chunk; return None if another call has appended it."""
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
        result = PartitionResult(progress, 0, int(outcome.resolved), NO_TOTALS.and_then(outcome))
        complete_job(log, plan, (result,))
    return outcome
