"""Forgetting jobs: what is recorded of them is removed for good, where that breaks no promise. Their rows stay.

What is recorded of a job is what makes a run of it append nothing twice. So a job is forgotten when it is complete,
and so long ago that no task of it, cut off from its driver, can still be at work: one that claimed a partition later
would find nothing of the rows that are there. Whoever says so himself may forget any other.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from spark_cas.core.errors import OptionError
from spark_cas.core.plan import Plan, Progress
from spark_cas.log.backend import Backend
from spark_cas.log.expanding import settled_layouts

_QUIET_MS = 3_600_000
"""No task outlives its job by more."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What the log holds of a job."""

    job: str
    """As a person named it."""
    plans: tuple[Plan, ...]
    """Its first plan, those of its rest since partitions were added, or those of its rounds."""
    rows: int
    complete: bool
    newest_ms: int
    """When it was completed, or last appended or planned anything."""


def forget_job(log: Backend, job: str, now_ms: int, *, force: bool = False) -> int:
    """Remove what is recorded of a job and return how many rows of it stay. A load of that name is then a new one.

    ``force`` is for who knows that none of its tasks is at work, and gives up what is not complete.

    Raises OptionError when there is no such job, or it would not be safe; LayoutChangedError while partitions are
    being added; LogNotFoundError, FormatError; StorageError: then the same call is to be made again.
    """
    names = [each for each in log.jobs() if each == job or each.startswith(f"{job}.")]
    plans = [plan for plan in map(log.plan, names) if plan is not None]
    for plan in plans:
        if plan.job == job and _owner(plan) != job:
            raise OptionError(f"job {job!r} is a part of job {_owner(plan)!r}. Nothing was removed. Name that job.")
    own = [plan for plan in plans if _owner(plan) == job]
    if not own:
        raise OptionError(f"the log knows no job {job!r}. Nothing was removed; 'spark-cas describe' lists all jobs.")
    kept = _kept(log, job, own)
    if not force:
        _require_safe(kept, now_ms)
    forget(log, kept)
    return kept.rows


def forget(log: Backend, kept: Kept) -> bool:
    """Remove what is recorded of a job that may be forgotten; False when another did, since it was looked at.

    Then there may be a new job of this name, which stays. In a store one that is planned at the very moment of the
    delete does not: no load of that name may run meanwhile. Raises what `forget_job` does but for OptionError.
    """
    settled_layouts(log)
    found = False
    for plan in kept.plans:
        if log.plan(plan.job) == plan:
            log.forget(plan)
            found = True
    return found


def older_jobs(log: Backend, now_ms: int, age_ms: int) -> list[Kept]:
    """The jobs that are complete and at rest for that long, an hour at least, sorted.

    Raises FormatError, StorageError, LogNotFoundError.
    """
    by_owner: dict[str, list[Plan]] = {}
    for plan in map(log.plan, log.jobs()):
        if plan is not None:
            by_owner.setdefault(_owner(plan), []).append(plan)
    found = (_kept(log, job, plans) for job, plans in sorted(by_owner.items()))
    return [each for each in found if each.complete and now_ms - each.newest_ms >= max(age_ms, _QUIET_MS)]


def _owner(plan: Plan) -> str:
    """The job that a person named."""
    return plan.continues or plan.round_of or plan.job


def _kept(log: Backend, job: str, plans: Iterable[Plan]) -> Kept:
    """What there is of a job that has these plans. The first goes first: without it the others are of no job."""
    ordered = sorted(plans, key=lambda plan: (bool(plan.continues), plan.layout_epoch, plan.job))
    rows, newest_ms, complete = 0, 0, True
    for plan in ordered:
        done = log.completion(plan.job)
        found = _found(log, plan) if done is None else [each.progress for each in done.partitions]
        rows += _rows_of(found)
        newest_ms = max(newest_ms, plan.pinned_at_ms, *(each.committed_at_ms for each in found))
        if done is not None:
            newest_ms = max(newest_ms, done.completed_at_ms)
        elif not _is_superseded(plan, ordered) and not (plan.round_of and _rows_of(found) == 0):
            complete = False
    return Kept(job, tuple(ordered), rows, complete, newest_ms)


def _found(log: Backend, plan: Plan) -> list[Progress]:
    found = log.progress_of(range(min(plan.partitions, log.layout().partitions)), plan.job)
    return [each for each in found if each is not None]


def _rows_of(found: Iterable[Progress]) -> int:
    return sum(each.rows for each in found)


def _is_superseded(plan: Plan, plans: Iterable[Plan]) -> bool:
    """Whether partitions were added since, and the rest of the job has a plan of its own."""
    return any(each.continues and each.layout_epoch > plan.layout_epoch for each in plans)


def _require_safe(kept: Kept, now_ms: int) -> None:
    """OptionError unless a job is complete and at rest."""
    job = kept.job
    if any(plan.stream for plan in kept.plans):
        what = f"job {job!r} is a stream, which is never complete"
    elif not kept.complete:
        what = f"job {job!r} is not complete; the same load, run again, completes it"
    elif now_ms - kept.newest_ms < _QUIET_MS:
        raise OptionError(
            f"job {job!r} was at work within the last hour, and a task that its driver lost sight of may still be: "
            f"without what is recorded it could append its rows a second time. Nothing was removed. Do it an hour "
            f"after the job ended, or now with --force if you know that none of its tasks runs."
        )
    else:
        return
    raise OptionError(
        f"{what}. Of its rows {kept.rows} are in the log. Nothing was removed. To give it up for good, once none of "
        f"its tasks runs, use --force: these rows stay, and a job of this name begins with its first row."
    )
