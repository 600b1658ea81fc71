"""Whether a log still is as a job expects it: looked at before the first row moves, and when some were refused.

The append decides, in the step that makes its rows visible. What is found here spares a job that is bound to be
refused its first half, finds what no append looks at (partitions that a job has no rows for), and names everything
that differs at once.
"""

from collections.abc import Iterable, Mapping, Sequence

from spark_cas.core.errors import ConditionalLogError, StorageError, TrimmedError
from spark_cas.core.expected_offsets import check_expected
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Conflict, Truncated
from spark_cas.core.plan import Plan, Progress, is_complete, resume_offset
from spark_cas.core.refusal import mismatch_error
from spark_cas.log import clock
from spark_cas.log.backend import Backend
from spark_cas.log.load.second_look import looked_again
from spark_cas.log.load.told_rows import told_held

Mismatch = Conflict | Truncated


def require_expected(log: Backend, plan: Plan, bounds: Sequence[Bounds]) -> None:
    """A job is about to be planned: every partition that it names must end where it expects.

    ``bounds`` are those of all partitions. Raises ConflictError or TruncatedError naming all that do not.
    """
    found = _mismatches(log, plan, plan.named, dict(enumerate(bounds)), {})
    if found:
        raise mismatch_error(found, _onward(plan, found, {}), "Nothing was appended.")


def require_expected_again(log: Backend, plan: Plan, progress: Sequence[Progress | None]) -> None:
    """A known job is about to go on: what it still expects of the partitions that it names must hold.

    ``progress`` is how far it came in all partitions; of one that is complete nothing is expected any more. Raises as
    `require_expected`, unless another run came on meanwhile, or the job is complete.
    """
    unfinished = [each for each in plan.named if not is_complete(progress[each])]
    found = mismatches_now(log, plan, unfinished, dict(enumerate(progress)))
    if not found or log.completion(plan.job) is not None:
        return
    # What lies behind the expected offset may be of the very job, appended by another attempt since.
    now = _progress(log, plan)
    found = {each: mismatch for each, mismatch in found.items() if now[each] == progress[each]}
    if found:
        raise mismatch_error(found, _onward(plan, found, now), f"Nothing was appended now. {_told_held(plan, now)}")


def require_expected_still(log: Backend, plan: Plan, without_rows: Sequence[int], rows: int) -> None:
    """All ``rows`` of a job are appended: what it expects of partitions that it has none for must hold as well.

    Raises as `require_expected`, unless another run completed the job meanwhile.
    """
    found = mismatches_now(log, plan, [each for each in plan.named if each in without_rows], {})
    if found and log.completion(plan.job) is None:
        told = f"Job {plan.told_as!r} has no rows there. "
        if plan.whole:
            told += "Nothing of it is visible, in no partition."
        else:
            told += (
                f"All {plan.earlier_rows + rows} that it has are in the log, in other partitions, and stay, but it "
                f"is not recorded as complete."
            )
        raise mismatch_error(found, _onward(plan, found, {}, without_rows), told)


def mismatch_now(
    log: Backend, plan: Plan, met: Iterable[int]
) -> tuple[dict[int, Mismatch], ConditionalLogError | None]:
    """Of a job that was refused: in which partitions it cannot go on, and one error for all, None when there is none.

    Looked at are those that its user named, that hold rows of it, and that its tasks ``met``. In any other it may
    have no rows: what others append there is their business, and naming it would make it the job's for ever.
    """
    progress = _progress(log, plan)
    # Once a stream is under way, nothing is expected of partitions that it has no rows for.
    named = () if plan.stream else plan.named
    concerned = {*named, *met, *(each for each, found in progress.items() if found is not None)}
    unfinished = [each for each in sorted(concerned) if not is_complete(progress[each])]
    found = mismatches_now(log, plan, unfinished, progress)
    if not found:
        return found, None
    return found, mismatch_error(found, _onward(plan, found, progress), _told_held(plan, progress))


def lost_to_another(
    log: Backend, plan: Plan, partition: int, progress: Progress | None, bounds: Bounds
) -> Conflict | None:
    """Whether nobody can append the next rows of a job: a record of another is where they would have to be.

    ``progress`` is how far the job came and ``bounds`` what the partition keeps; when that is not true any more,
    nothing is said. Whether it is, the ledger tells, which may wait for an open transaction.
    """
    expected = resume_offset(plan, partition, progress)
    if expected is None or bounds.end_offset < expected:
        return None
    try:
        found = _look(log, partition, expected, bounds, progress)
    except ValueError:
        return None
    if not isinstance(found, Conflict) or log.progress(partition, plan.job, plan.group) != progress:
        return None
    return found


def _mismatches(
    log: Backend,
    plan: Plan,
    partitions: Iterable[int],
    bounds: Mapping[int, Bounds],
    progress: Mapping[int, Progress | None],
) -> dict[int, Mismatch]:
    """Which of some partitions do not end where the job's next chunk there would expect it.

    ``bounds`` and ``progress`` tell of these partitions. A mismatch that says that records are gone is found again
    and again, in bounds that are asked for here.
    """
    expected = {each: resume_offset(plan, each, progress.get(each)) for each in partitions}

    def look(at: Iterable[int], bounds: Mapping[int, Bounds]) -> dict[int, Mismatch | None]:
        return {
            each: _mismatch(log, each, offset, bounds[each], progress.get(each))
            for each in at
            if (offset := expected[each]) is not None
        }

    def look_now(at: Sequence[int]) -> dict[int, Mismatch | None]:
        return look(at, dict(zip(at, log.bounds_of(at, waiting=True), strict=True)))

    found = looked_again(log, look(expected, bounds), look_now)
    return {each: mismatch for each, mismatch in found.items() if mismatch is not None}


def mismatches_now(
    log: Backend, plan: Plan, partitions: Sequence[int], progress: Mapping[int, Progress | None]
) -> dict[int, Mismatch]:
    """Which of some partitions do not end where the job's next chunk there would expect it.

    ``progress`` is how far it came in them, nothing where it is not given.
    """
    bounds = log.bounds_of(partitions, waiting=True)
    return _mismatches(log, plan, partitions, dict(zip(partitions, bounds, strict=True)), progress)


def _mismatch(
    log: Backend, partition: int, expected: int, bounds: Bounds, progress: Progress | None
) -> Mismatch | None:
    """As `_look`, once more when a leader that lags knows of less than ``bounds``."""
    try:
        return _look(log, partition, expected, bounds, progress)
    except ValueError:
        (again,) = log.bounds_of([partition], waiting=True)
    try:
        return _look(log, partition, expected, again, progress)
    except ValueError:
        raise StorageError(
            f"partition {partition}: it was told to end at offset {again.end_offset}, and then to end before that. "
            f"What it holds of the job stays. Run the same job again when all replicas of the log are in step."
        ) from None


def _look(log: Backend, partition: int, expected: int, bounds: Bounds, progress: Progress | None) -> Mismatch | None:
    """As `check_expected`, which a gap that holds no record passes; ValueError when it is not within bounds."""
    if not bounds.start_offset <= expected < bounds.end_offset:
        return check_expected(expected, bounds, None)
    gap = OffsetRange(expected, bounds.end_offset)
    try:
        held = next((base for base, records in log.read(partition, gap, ()) if records.num_rows), None)
    except (TrimmedError, ValueError):
        if log.bounds_of([partition], waiting=False)[0].start_offset <= expected:
            raise
        held = None
    # The gap proves only while nothing that lay in it was trimmed meanwhile.
    start_offset = log.bounds_of([partition], waiting=False)[0].start_offset
    if held is None and not _proves(log, expected, progress):
        held = expected
    return check_expected(expected, Bounds(start_offset, bounds.end_offset), held)


def _proves(log: Backend, expected: int, progress: Progress | None) -> bool:
    """Whether an empty gap shows that no record ever was there: deletions of keys are compacted away in the end.

    So on a log that does that, only a gap that is younger shows it, which is known where the job's own rows end.
    """
    kept_ms = log.tombstones_kept_ms()
    if kept_ms is None:
        return True
    if progress is None or expected < progress.end_offset:
        return False
    return clock.now_ms() - progress.committed_at_ms < kept_ms // 2


def _progress(log: Backend, plan: Plan) -> dict[int, Progress | None]:
    return dict(enumerate(log.progress_of(range(plan.partitions), plan.job)))


def _onward(
    plan: Plan,
    found: Mapping[int, Mismatch],
    progress: Mapping[int, Progress | None],
    partitions: Sequence[int] | None = None,
) -> dict[int, int | None]:
    """All that a run has to be given to go on, of some ``partitions`` or all that are not complete.

    What this run was given is kept nowhere, so it is part of it.
    """
    given = {*found, *plan.named, *(each.partition for each in plan.replaced)}
    return {
        each: found[each].actual if each in found else resume_offset(plan, each, progress.get(each))
        for each in sorted(given if partitions is None else given.intersection(partitions))
        if not is_complete(progress.get(each))
    }


def _told_held(plan: Plan, progress: Mapping[int, Progress | None]) -> str:
    return told_held(plan, sum(each.rows for each in progress.values() if each is not None))
