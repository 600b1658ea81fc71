"""Append records to several partitions atomically, with an optional expected offset for each."""

import math
import random
from collections.abc import Mapping

import pyarrow as pa

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
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
from spark_cas.core.outcome import NO_TOTALS, Appended, Fenced, LayoutChanged, Outcome, Unknown
from spark_cas.core.plan import Layout, PartitionResult, Plan
from spark_cas.core.refusal import error_of
from spark_cas.log import timing
from spark_cas.log.backend import Backend
from spark_cas.log.deadline import Wait, cap_wait_on_others
from spark_cas.log.expanding import layout_with
from spark_cas.log.load.append_once_records import checked_offset, chunk_of, existing_result, same_as
from spark_cas.log.load.atomic_load import abort_group, is_committed, undecided_progress
from spark_cas.log.load.planning import complete_job, job_progress, pin_plan
from spark_cas.log.load.require_expected import mismatches_now

_DOING = "appending to several partitions"
_PAUSE_SHARE = 1.5
"""The pause after the release, as a multiple of the time for which the partitions are blocked."""
_JITTER = random.SystemRandom()


def append_whole(
    log: Backend,
    records: Mapping[int, pa.Table],
    *,
    job: str,
    expected_offsets: Mapping[int, int | None],
    layout: Layout | None = None,
) -> dict[int, Outcome]:
    """Append records to several partitions atomically, as `append_once` does for a mapping.

    Args:
        log: The log.
        records: The records of each partition.
        job: The name of the append.
        expected_offsets: The expected offset of each partition, which may include partitions without records.
        layout: The layout for which the caller placed the records; None for no check.

    Returns:
        An `Appended` for each partition; or, if nothing was appended, the outcomes of the partitions that rejected
            it.

    Raises:
        LayoutChangedError: The log was expanded since ``layout``. Nothing was appended.
        ConditionalLogError: The errors of `append_once`.
    """
    chunks = {partition: chunk_of(records[partition], job) for partition in sorted(records)}
    result = layout_with(log, {*records, *expected_offsets})
    if not chunks or not chunks.keys() <= expected_offsets.keys():
        msg = "append_once takes records of at least one partition, and an expected offset, or None, for each"
        raise ValueError(msg)
    offsets = tuple(
        (partition, checked_offset(expected_offsets[partition])) for partition in sorted(expected_offsets)
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
        return {**existing_result(log, plan, before, chunks)}
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
        return {**existing_result(log, plan, before, chunks)}


def _require_same(layout: Layout, epoch: int, chunks: Mapping[int, Chunk]) -> None:
    if epoch != layout.epoch:
        raise error_of(LayoutChanged(layout.epoch, epoch), min(chunks))


def _append_yielding(
    log: Backend, plan: Plan, wanted: ExpectedOffsets, chunks: Mapping[int, Chunk]
) -> dict[int, Outcome]:
    """Call `_append`, and retry after a transient failure or if another load blocks it.

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
            return _append(log, plan, chunks, _JITTER.uniform(0.5, 1.5) * holding_seconds)
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


def _append(log: Backend, plan: Plan, chunks: Mapping[int, Chunk], holding_seconds: float) -> dict[int, Outcome]:
    """Append to all partitions; after the first one, limit the wait for other writers."""
    existing: dict[int, Appended] = {}
    results: list[PartitionResult] = []
    for partition, chunk in chunks.items():
        with cap_wait_on_others(holding_seconds if results else math.inf):
            outcome, result = _append_to(log, plan, partition, chunk)
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


def _append_to(log: Backend, plan: Plan, partition: int, chunk: Chunk) -> tuple[Outcome, PartitionResult | None]:
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
    appends = NO_TOTALS.and_then(outcome)
    return outcome, PartitionResult(claim.progress_after(chunk, outcome.range), 0, int(outcome.resolved), appends)
