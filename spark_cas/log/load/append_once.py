"""A conditional append without a load, for programs that write to a log directly: to one partition, or to several.

All rows of the job in a partition are one chunk.
"""

import math
import operator
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, overload

import pyarrow as pa

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.digest import RunningDigest
from spark_cas.core.errors import (
    ConflictError,
    FencedError,
    InputChangedError,
    StorageError,
    TransactionEndedError,
    UndecidedError,
)
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.outcome import NO_TOTALS, Appended, Fenced, LayoutChanged, Outcome, Unknown, error_of
from spark_cas.core.plan import Layout, PartitionResult, Plan, Progress
from spark_cas.core.records import RECORDS
from spark_cas.core.row_claims import NO_CHECK, check_keys, invalid_offset
from spark_cas.log import clock, timing
from spark_cas.log.backend import Backend
from spark_cas.log.deadline import Wait, cap_wait_on_others
from spark_cas.log.expanding import layout_with
from spark_cas.log.load.append_by_key import PartitionAppends
from spark_cas.log.load.atomic_load import abort_group, is_committed, undecided_progress
from spark_cas.log.load.planning import complete_job, job_progress, pin_plan
from spark_cas.log.load.require_expected import mismatches_now

_DOING = "appending to several partitions"
_PAUSE_SHARE = 1.5
"""The pause after the release, as a multiple of the time for which the partitions are blocked."""
_JITTER = random.SystemRandom()


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
        ExpectedOffsetError: An expected offset is below -1 or not an int64, or a record without a key has one with
            ``compare="key"``.
        InputChangedError: The job appended other records before, or began to append to another partition.
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
    chunk = _chunk_of(records, job)
    partition, expected_offset = operator.index(partition), _checked_offset(expected_offset)
    layout_with(log, [partition])
    wanted = ExpectedOffsets("offsets", ((partition, expected_offset),))
    # The plan records the partition, because concurrent calls for different partitions would both append.
    own = f"partition-{partition}"
    plan = pin_plan(log, job, wanted, compare=compare, any_layout=True, input_digest=own)
    # The call that recorded the plan is the first one.
    before = job_progress(log, job) if plan.rejoined else ()
    if not before:
        outcome = _append(log, plan, partition, chunk, expected_offset)
        if outcome is not None and not isinstance(outcome, Fenced | LayoutChanged):
            return outcome
        # A concurrent call may have appended, or an earlier one before an expansion.
        before = job_progress(log, job, proven=True)
        if outcome is not None and not before:
            return outcome
    return _existing_result(log, plan, before, {partition: chunk})[partition]


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
    outcome, claim = PartitionAppends(log, partition).append(claim, chunk)
    if isinstance(outcome, Appended):
        complete_job(log, plan, (_result_of(claim, chunk, outcome),))
    return outcome


def append_whole(
    log: Backend,
    records: Mapping[int, pa.Table],
    *,
    job: str,
    expected_offsets: Mapping[int, int | None],
    layout: Layout | None = None,
) -> dict[int, Outcome]:
    """Append records to several partitions atomically, as `append_once` does for a mapping.

    ``expected_offsets`` may include partitions without records. ``layout`` is that for which the caller placed the
    records; None for no check.

    Raises:
        LayoutChangedError: The log was expanded since ``layout``. Nothing was appended.
    """
    chunks = {operator.index(partition): _chunk_of(records[partition], job) for partition in sorted(records)}
    result = layout_with(log, {*records, *expected_offsets})
    if not chunks or not chunks.keys() <= expected_offsets.keys():
        msg = "append_once takes records of at least one partition, and an expected offset, or None, for each"
        raise ValueError(msg)
    offsets = tuple(
        (operator.index(partition), _checked_offset(expected_offsets[partition]))
        for partition in sorted(expected_offsets)
    )
    wanted = ExpectedOffsets("offsets", offsets)
    if layout is not None:
        # Check before the plan is recorded, and again after it, which decides.
        _require_same(layout, result.epoch, chunks)
    plan = pin_plan(log, job, wanted, any_layout=True, whole=True)
    if layout is not None:
        _require_same(layout, plan.layout_epoch, chunks)
    # The call that recorded the plan is the first one.
    before = job_progress(log, job) if plan.rejoined else ()
    if before:
        return {**_existing_result(log, plan, before, chunks)}
    if plan.rejoined and not all(
        each.partition in chunks and same_as(each, chunks[each.partition]) for each in undecided_progress(log, plan)
    ):
        # A call that crashed before its commit had other records, which never become visible.
        abort_group(log, plan)
        plan = pin_plan(log, job, wanted, any_layout=True, whole=True)
    try:
        return _append_yielding(log, plan, wanted, chunks)
    except (FencedError, InputChangedError):
        # A concurrent call of the job owns the group, so do not abort it.
        before = job_progress(log, job, proven=True)
        if not before:
            raise
        return {**_existing_result(log, plan, before, chunks)}


def _require_same(layout: Layout, epoch: int, chunks: Mapping[int, Chunk]) -> None:
    if epoch != layout.epoch:
        raise error_of(LayoutChanged(layout.epoch, epoch), min(chunks))


def _append_yielding(
    log: Backend, plan: Plan, wanted: ExpectedOffsets, chunks: Mapping[int, Chunk]
) -> dict[int, Outcome]:
    """Call `_append_all`, and retry after a transient failure or if another load blocks it.

    The other load may itself wait for a partition that this one blocks.
    """
    # The other load polls, and must see the released partitions before this call claims them again.
    holding_seconds = timing.current().partial_hold
    pause = _PAUSE_SHARE * holding_seconds
    wait = Wait(log.patience_seconds, _DOING, pause, pause)
    ended: Wait | None = None
    while True:
        try:
            # A random time, so that two loads do not retry at the same moment.
            return _append_all(log, plan, chunks, _JITTER.uniform(0.5, 1.5) * holding_seconds)
        except (FencedError, InputChangedError):
            raise
        except TransactionEndedError as error:
            # No row is or becomes visible, and the group is undecided: send all rows again.
            ended = ended or Wait(log.patience_seconds, _DOING)
            if not ended.again(error.message):
                abort_group(log, plan)
                raise
        except BaseException as error:
            abort_group(log, plan)
            if not isinstance(error, UndecidedError) or not wait.again(error.message):
                raise
            plan = pin_plan(log, plan.job, wanted, any_layout=True, whole=True)
            holding_seconds *= 2


def _append_all(log: Backend, plan: Plan, chunks: Mapping[int, Chunk], holding_seconds: float) -> dict[int, Outcome]:
    """Append to all partitions; after the first one, limit the wait for other writers."""
    existing: dict[int, Appended] = {}
    results: list[PartitionResult] = []
    for partition, chunk in chunks.items():
        with cap_wait_on_others(holding_seconds if results else math.inf):
            outcome, result = _append_to_group(log, plan, partition, chunk)
        if isinstance(outcome, Fenced):
            raise error_of(outcome, partition)
        if result is None or not isinstance(outcome, Appended):
            abort_group(log, plan)
            if job_progress(log, plan.job, proven=True):
                # Another call committed: the records at the expected offset are its own.
                raise error_of(Fenced(None), partition)
            return {**mismatches_now(log, plan, plan.named, {}), partition: outcome}
        existing[partition] = outcome
        results.append(result)
    only_named = [each for each in plan.named if each not in chunks]
    with cap_wait_on_others(holding_seconds):
        refused = mismatches_now(log, plan, only_named, {})
        if not refused:
            try:
                # An error about lost records may follow a commit, so pass it on.
                complete_job(log, plan, tuple(results))
            except ConflictError:
                # Another writer appended after that check.
                refused = mismatches_now(log, plan, only_named, {})
                if not refused and not is_committed(log, plan):
                    raise
            else:
                return {**existing}
    abort_group(log, plan)
    if not refused or is_committed(log, plan):
        # Another call committed it, and the expected offsets need not match any more.
        complete_job(log, plan, tuple(results))
        return {**existing}
    return {**refused}


def _append_to_group(
    log: Backend, plan: Plan, partition: int, chunk: Chunk
) -> tuple[Outcome, PartitionResult | None]:
    """Append a chunk to the group, unless an earlier call did. The result is None if the chunk is not appended."""
    claim = log.claim(partition, plan)
    if not isinstance(claim, Claim):
        return claim, None
    if claim.progress is not None:
        if not same_as(claim.progress, chunk):
            raise InputChangedError(
                f"partition {partition}: another call for job {plan.job!r} is appending other records. Nothing of "
                f"this one is visible. Another append needs a job name of its own.",
                partition=partition,
                job=plan.job,
            )
        at = OffsetRange(claim.progress.base_offset, claim.progress.end_offset)
        appended = Appended(at, chunk.rows, None, 0, has_offset=True, resolved=True)
        return appended, PartitionResult(claim.progress, chunk.rows, 0)
    outcome = log.append(claim, chunk)
    if isinstance(outcome, Unknown):
        # The chunk is visible only if its group commits, and the caller aborts the group.
        raise StorageError(
            f"appending to partition {partition}: {outcome.cause}. Nothing of it is or becomes visible."
        )
    if not isinstance(outcome, Appended):
        return outcome, None
    return outcome, _result_of(claim, chunk, outcome)


def _chunk_of(records: pa.Table, task: str) -> Chunk:
    if records.num_rows == 0 or not records.schema.equals(RECORDS):
        msg = (
            f"append_once takes at least one record in the schema spark_cas.RECORDS, got {records.num_rows} with "
            f"columns {', '.join(records.schema.names)}"
        )
        raise ValueError(msg)
    digest = RunningDigest()
    for batch in records.to_batches():
        digest.update(batch)
    return Chunk(
        records=records,
        rows=records.num_rows,
        digest=digest.hexdigest(),
        complete=True,
        task=task,
        time_ms=clock.now_ms(),
    )


def _checked_offset(expected_offset: int | None) -> int | None:
    """Return an expected offset, maybe of numpy, as int; None for -1. Raise ExpectedOffsetError if out of range."""
    if expected_offset is None:
        return None
    offset = operator.index(expected_offset)
    if not NO_CHECK <= offset < 2**63:
        raise invalid_offset(0, offset)
    return None if offset == NO_CHECK else offset


def same_as(progress: Progress, chunk: Chunk) -> bool:
    """Return whether a ledger entry describes exactly this chunk."""
    return (progress.rows, progress.digest, progress.complete) == (chunk.rows, chunk.digest, True)


def _existing_result(
    log: Backend, plan: Plan, before: tuple[Progress, ...], chunks: Mapping[int, Chunk]
) -> dict[int, Appended]:
    """Return the appends of an earlier call, by partition, and complete the job.

    The earlier call may have crashed before it recorded the completion. If the log holds other rows, the function
    must not complete the job, because a load of that name would never append its remaining rows.
    """
    held = {each.partition: each for each in before}
    if held.keys() != chunks.keys() or not all(same_as(held[each], chunk) for each, chunk in chunks.items()):
        message = ", ".join(f"{each.rows} in partition {each.partition}" for each in before)
        raise InputChangedError(
            f"job {plan.job!r} appended other records before, or the same to another partition: the log holds "
            f"{message}. Nothing was appended now. Another append needs a job name of its own, under which these "
            f"would be appended again.",
            job=plan.job,
        )
    completion = complete_job(log, plan, tuple(PartitionResult(each, each.rows, 0) for each in before))
    return {
        each.progress.partition: Appended(
            range=OffsetRange(each.progress.base_offset, each.progress.end_offset),
            count=each.progress.rows,
            timestamp_ms=each.appends.timestamp_ms,
            start_offset=log.bounds(each.progress.partition).start_offset,
            has_offset=True,
            resolved=True,
        )
        for each in completion.partitions
    }


def _result_of(claim: Claim, chunk: Chunk, outcome: Appended) -> PartitionResult:
    progress = claim.progress_after(chunk, outcome.range)
    return PartitionResult(progress, 0, int(outcome.resolved), NO_TOTALS.and_then(outcome))
