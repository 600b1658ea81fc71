"""Forget jobs: permanently remove the records of a job if that breaks no guarantee. Its rows stay in the log.

The records of a job prevent a rerun from appending rows twice. A job may be forgotten if it is complete, and if no
task of it can still run without its driver. Such a task could claim a partition later, and would not find the
existing rows. With ``force``, the caller takes responsibility for any other job.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from spark_cas.core.errors import OptionError
from spark_cas.core.plan import Plan
from spark_cas.log import timing
from spark_cas.log.backend import Backend
from spark_cas.log.expanding import settled_layouts


@dataclass(frozen=True, slots=True)
class Kept:
    """The records of a job in the log."""

    job: str
    """The name that the user gave."""
    plans: tuple[Plan, ...]
    """Its first plan, the plans of its remaining rows after an expansion, or the plans of its rounds."""
    rows: int
    complete: bool
    newest_ms: int
    """When the job was completed, or last appended or planned, in milliseconds since 1970."""


def forget_job(log: Backend, job: str, now_ms: int, *, force: bool = False, dry_run: bool = False) -> int:
    """Remove the records of a job, and return how many of its rows stay. A later load with this name is a new job.

    Args:
        log: The log.
        job: The name of the job.
        now_ms: The current time in milliseconds since 1970.
        force: Skip the safety check. Use it only if no task of the job runs. An incomplete job cannot be resumed.
        dry_run: Remove nothing after the checks.

    Raises:
        OptionError: The job does not exist, or removing it is not safe.
        LayoutChangedError: Partitions are being added.
        StorageError: The store failed. Repeat the call.
        LogNotFoundError, FormatError: The log cannot be read.
    """
    names = [each for each in log.jobs() if each == job or each.startswith(f"{job}.")]
    plans = [plan for plan in map(log.plan, names) if plan is not None]
    for plan in plans:
        if plan.job == job and _owner(plan) != job:
            raise OptionError(
                f"job {job!r} is a part of job {_owner(plan)!r}. Nothing was removed. Name that job.", job=job
            )
    own = [plan for plan in plans if _owner(plan) == job]
    if not own:
        raise OptionError(
            f"the log knows no job {job!r}. Nothing was removed; 'spark-cas describe' lists all jobs.", job=job
        )
    kept = _kept(log, job, own)
    if not force:
        _require_safe(kept, now_ms)
    forget(log, kept, dry_run=dry_run)
    return kept.rows


def forget(log: Backend, kept: Kept, *, dry_run: bool = False) -> bool:
    """Remove the records of a job that may be forgotten. Return False if another caller removed them first.

    A new job of this name, planned since ``kept`` was read, stays. In an object store, a job planned during the
    removal may be lost: run no load of that name meanwhile. With ``dry_run``, nothing is removed.

    Raises:
        LayoutChangedError, LogNotFoundError, FormatError, StorageError: As for `forget_job`.
    """
    settled_layouts(log)
    result = False
    for plan in kept.plans:
        if log.plan(plan.job) == plan:
            if not dry_run:
                log.forget(plan)
            result = True
    return result


def older_jobs(log: Backend, now_ms: int, age_ms: int) -> list[Kept]:
    """Return the jobs that are complete and idle for at least ``age_ms``, and at least an hour, sorted by name.

    Raises FormatError, StorageError, LogNotFoundError.
    """
    result = (_kept(log, job, plans) for job, plans in plans_by_job(log).items())
    return [each for each in result if each.complete and now_ms - each.newest_ms >= max(age_ms, _straggler_ms())]


def plans_by_job(log: Backend) -> dict[str, list[Plan]]:
    """Return the plans of each job of a log by the name that the user gave, sorted by that name.

    Raises FormatError, StorageError, LogNotFoundError.
    """
    result: dict[str, list[Plan]] = {}
    for plan in map(log.plan, log.jobs()):
        if plan is not None:
            result.setdefault(_owner(plan), []).append(plan)
    return dict(sorted(result.items()))


def _owner(plan: Plan) -> str:
    """Return the name that the user gave to the job of a plan."""
    return plan.continues or plan.round_of or plan.job


def _kept(log: Backend, job: str, plans: Iterable[Plan]) -> Kept:
    """Return the records of a job with these plans, the first plan first, because the others depend on it."""
    ordered = sorted(plans, key=lambda plan: (bool(plan.continues), plan.layout_epoch, plan.job))
    rows, newest_ms, complete = 0, 0, True
    for plan in ordered:
        done = log.completion(plan.job)
        if done is None:
            entries = log.progress_of(range(min(plan.partitions, log.layout().partitions)), plan.job)
            result = [each for each in entries if each is not None]
        else:
            result = [each.progress for each in done.partitions]
        own_rows = sum(each.rows for each in result)
        rows += own_rows
        newest_ms = max(newest_ms, plan.pinned_at_ms, *(each.committed_at_ms for each in result))
        if done is not None:
            newest_ms = max(newest_ms, done.completed_at_ms)
        elif not is_superseded(plan, ordered) and not (plan.round_of and own_rows == 0):
            complete = False
    return Kept(job, tuple(ordered), rows, complete, newest_ms)


def is_superseded(plan: Plan, plans: Iterable[Plan]) -> bool:
    """Return whether partitions were added since, and the remaining rows of the job have a plan of their own."""
    return any(each.continues and each.layout_epoch > plan.layout_epoch for each in plans)


def _straggler_ms() -> float:
    """Return how long a task may run after its job has ended, at most."""
    return 1000 * timing.current().straggler_age


def _require_safe(kept: Kept, now_ms: int) -> None:
    """Raise OptionError unless a job is complete and idle."""
    job = kept.job
    if any(plan.stream for plan in kept.plans):
        subject = f"job {job!r} is a stream, which is never complete"
    elif not kept.complete:
        subject = f"job {job!r} is not complete; the same load, run again, completes it"
    elif now_ms - kept.newest_ms < _straggler_ms():
        raise OptionError(
            f"job {job!r} ran within the last hour, and one of its tasks may still run. Without the records of the "
            f"job, the task could append its rows a second time. Nothing was removed. Run this command an hour after "
            f"the end of the job. If no task runs, use --force.",
            job=job,
        )
    else:
        return
    raise OptionError(
        f"{subject}. Of its rows {kept.rows} are in the log. Nothing was removed. To give it up for good, once none "
        f"of its tasks runs, use --force: these rows stay, and a job of this name begins with its first row."
    )
