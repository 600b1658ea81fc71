"""Check the expected offsets of a job before its first append, and after a rejection.

The conditional append alone decides. These checks reject a job early, before it has appended some of its rows. They
also cover partitions without rows, which no append checks, and report all mismatches at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from spark_cas.core.errors import ConditionalLogError, StorageError, TrimmedError
from spark_cas.core.expected_offsets import check_expected
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Conflict, Truncated, mismatch_error, rows_in_log_text
from spark_cas.core.plan import Plan, Progress, is_complete, resume_offset
from spark_cas.log import clock
from spark_cas.log.backend import Backend

Mismatch = Conflict | Truncated


def require_expected(log: Backend, plan: Plan, bounds: Sequence[Bounds]) -> None:
    """Raise an error unless each named partition ends at its expected offset, before a job is planned.

    ``bounds`` are those of all partitions.

    Raises:
        ConflictError: A partition has records at or after its expected offset. The error lists all mismatches.
        TruncatedError: A partition ends before its expected offset.
    """
    mismatches = _mismatches(log, plan, plan.named, dict(enumerate(bounds)), {})
    if mismatches:
        raise _error(plan, mismatches, {}, "Nothing was appended.")


def require_expected_again(log: Backend, plan: Plan, progress: Sequence[Progress | None]) -> None:
    """Raise an error unless each named partition still matches, before a known job resumes.

    The check ignores complete partitions, a job that is complete, and partitions in which another run made progress
    since. ``progress`` has the ledger entries of all partitions. Raises as `require_expected`.
    """
    unfinished = [each for each in plan.named if not is_complete(progress[each])]
    mismatches = mismatches_now(log, plan, unfinished, dict(enumerate(progress)))
    if not mismatches or log.completion(plan.job) is not None:
        return
    # Records after the expected offset may belong to a concurrent attempt of the same job.
    now = _progress(log, plan)
    mismatches = {each: mismatch for each, mismatch in mismatches.items() if now[each] == progress[each]}
    if mismatches:
        raise _error(plan, mismatches, now, f"Nothing was appended now. {_rows_in_ledger(log, plan, now)}")


def require_expected_still(log: Backend, plan: Plan, without_rows: Sequence[int], rows: int) -> None:
    """Raise an error unless the named partitions without rows match, after a job has appended all rows.

    The check ignores a job that another run has completed. ``rows`` is the number of rows of the job, for the error.
    Raises as `require_expected`.
    """
    mismatches = mismatches_now(log, plan, [each for each in plan.named if each in without_rows], {})
    if mismatches and log.completion(plan.job) is None:
        rows_in_log = f"Job {plan.display_name!r} has no rows there. "
        if plan.whole:
            rows_in_log += "Nothing of it is visible, in no partition."
        else:
            rows_in_log += (
                f"All {plan.earlier_rows + rows} that it has are in the log, in other partitions, and stay, but it "
                f"is not recorded as complete."
            )
        raise _error(plan, mismatches, {}, rows_in_log, without_rows)


def mismatch_now(
    log: Backend, plan: Plan, read_partitions: Iterable[int]
) -> tuple[dict[int, Mismatch], ConditionalLogError | None]:
    """Return the partitions in which a rejected job cannot resume, and one error for all of them.

    The check covers the partitions that the user named, that hold rows of the job, and those in ``read_partitions``.
    It skips all others, because the job may have no rows there. If the error listed such a partition, the next run
    would name it, and so depend on it in all later runs. The tasks of the job read rows of ``read_partitions``.
    """
    progress = _progress(log, plan)
    # After its first batch, a stream has no expected offsets in partitions without rows.
    named = () if plan.stream else plan.named
    concerned = {*named, *read_partitions, *(each for each, known in progress.items() if known is not None)}
    unfinished = [each for each in sorted(concerned) if not is_complete(progress[each])]
    mismatches = mismatches_now(log, plan, unfinished, progress)
    if not mismatches:
        return mismatches, None
    return mismatches, _error(plan, mismatches, progress, _rows_in_ledger(log, plan, progress))


def lost_to_another(
    log: Backend, plan: Plan, partition: int, progress: Progress | None, bounds: Bounds
) -> Conflict | None:
    """Return a Conflict if another job has a record at the offset of the job's next row.

    If the ledger entry of the job differs from ``progress``, the result is None. This check may wait for an open
    transaction.
    """
    expected = resume_offset(plan, partition, progress)
    if expected is None or bounds.end_offset < expected:
        return None
    try:
        result = _mismatch_at(log, partition, expected, bounds, progress)
    except ValueError:
        return None
    if not isinstance(result, Conflict) or log.progress(partition, plan.job, plan.group) != progress:
        return None
    return result


def _mismatches(
    log: Backend,
    plan: Plan,
    partitions: Iterable[int],
    bounds: Mapping[int, Bounds],
    progress: Mapping[int, Progress | None],
) -> dict[int, Mismatch]:
    """Return the mismatches as `mismatches_now`. A new read replaces ``bounds`` below the expected offset."""
    resumed = {each: resume_offset(plan, each, progress.get(each)) for each in partitions}
    expected = {each: offset for each, offset in resumed.items() if offset is not None}
    beyond = {each: offset for each, offset in expected.items() if bounds[each].end_offset < offset}
    if beyond:
        confirmed = log.bounds_of([*beyond], waiting=True, at_least=[*beyond.values()])
        bounds = {**bounds, **dict(zip(beyond, confirmed, strict=True))}
    result = ((each, _mismatch(log, each, at, bounds[each], progress.get(each))) for each, at in expected.items())
    return {each: mismatch for each, mismatch in result if mismatch is not None}


def mismatches_now(
    log: Backend, plan: Plan, partitions: Sequence[int], progress: Mapping[int, Progress | None]
) -> dict[int, Mismatch]:
    """Return which of these partitions do not end at the offset of the job's next chunk.

    If ``progress`` has no ledger entry of a partition, the job has no rows there.
    """
    bounds = log.bounds_of(partitions, waiting=True)
    return _mismatches(log, plan, partitions, dict(zip(partitions, bounds, strict=True)), progress)


def _mismatch(
    log: Backend, partition: int, expected: int, bounds: Bounds, progress: Progress | None
) -> Mismatch | None:
    """Call `_mismatch_at`. Raise StorageError if the partition does not reach the end of ``bounds`` any more."""
    try:
        return _mismatch_at(log, partition, expected, bounds, progress)
    except ValueError:
        raise StorageError(
            f"partition {partition}: brokers reported the end offset {bounds.end_offset}, then a lower one. Existing "
            f"rows of the job stay. Run the same job again when all replicas of the log are in sync.",
            partition=partition,
        ) from None


def _mismatch_at(
    log: Backend, partition: int, expected: int, bounds: Bounds, progress: Progress | None
) -> Mismatch | None:
    """Apply `check_expected`, which accepts a gap without records; raise ValueError beyond the current end."""
    if not bounds.start_offset <= expected < bounds.end_offset:
        return check_expected(expected, bounds, None)
    gap = OffsetRange(expected, bounds.end_offset)
    try:
        held = next((base for base, records in log.read(partition, gap, ()) if records.num_rows), None)
    except (TrimmedError, ValueError):
        if log.bounds_of([partition], waiting=False)[0].start_offset <= expected:
            raise
        held = None
    # A read of the gap proves nothing if the log trimmed records from it meanwhile.
    start_offset = log.bounds_of([partition], waiting=False)[0].start_offset
    if held is None and not _proves(log, expected, progress):
        held = expected
    return check_expected(expected, Bounds(start_offset, bounds.end_offset), held)


def _proves(log: Backend, expected: int, progress: Progress | None) -> bool:
    """Return whether an empty gap proves that it never held a record.

    Compaction removes records and, later, deletions of keys. On a compacted topic, only a young gap proves this. The
    age of a gap is known only from the job's own last append.
    """
    kept_ms = log.tombstones_kept_ms()
    if kept_ms is None:
        return True
    if progress is None or expected < progress.end_offset:
        return False
    return clock.now_ms() - progress.committed_at_ms < kept_ms // 2


def _progress(log: Backend, plan: Plan) -> dict[int, Progress | None]:
    return dict(enumerate(log.progress_of(range(plan.partitions), plan.job)))


def _error(
    plan: Plan,
    mismatches: Mapping[int, Mismatch],
    progress: Mapping[int, Progress | None],
    rows_in_log: str,
    partitions: Sequence[int] | None = None,
) -> ConditionalLogError:
    """Return the error with all expected offsets that the next run needs, in ``partitions`` or all incomplete ones.

    They include the offsets of this run, because the log does not store them.
    """
    named = {*mismatches, *plan.named, *(each.partition for each in plan.replaced)}
    next_offsets = {
        each: mismatches[each].actual if each in mismatches else resume_offset(plan, each, progress.get(each))
        for each in sorted(named if partitions is None else named.intersection(partitions))
        if not is_complete(progress.get(each))
    }
    return mismatch_error(plan.display_name, mismatches, next_offsets, rows_in_log)


def _rows_in_ledger(log: Backend, plan: Plan, progress: Mapping[int, Progress | None]) -> str:
    return rows_in_ledger_text(log, plan, sum(each.rows for each in progress.values() if each is not None))


def rows_in_ledger_text(log: Backend, plan: Plan, rows: int) -> str:
    """Return a sentence that reports the rows in the log of an incomplete job, of which the ledger has ``rows``.

    If entries may have expired, the sentence never reports that there is no row, because the user would load all rows
    again.
    """
    rows += plan.earlier_rows
    with suppress(StorageError):
        if clock.now_ms() - plan.pinned_at_ms < log.unexpired_ms():
            return rows_in_log_text(plan.display_name, rows)
    return (
        f"{rows_in_log_text(plan.display_name, rows or None)} It began days ago, and the ledger of a topic expires, "
        f"so there may be more. Check first whether the new records are those of the job."
    )
