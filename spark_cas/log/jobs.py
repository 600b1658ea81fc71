"""The recorded jobs of a log: their states, the rows that the log removed, and how to forget a job.

A forget permanently removes the records of a job if that breaks no guarantee. Its rows stay in the log.

The records of a job prevent a rerun from appending rows twice. A job may be forgotten if it is complete, and if no
task of it can still run without its driver. Such a task could claim a partition later, and would not find the
existing rows. With ``force``, the caller takes responsibility for any other job.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from spark_cas.core.errors import ChunkDamagedError, ConditionalLogError, FormatError, OptionError, UndecidedError
from spark_cas.core.plan import Completion, Plan, Progress
from spark_cas.log import timing
from spark_cas.log.backend import Backend
from spark_cas.log.expanding import settled_layouts
from spark_cas.log.load.atomic_load import undecided_progress
from spark_cas.log.load.locking import abort_open_group


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
        force: Skip the safety check. Use it only if no task of the job runs. An incomplete job cannot be resumed.
        dry_run: Remove nothing after the checks.

    Raises:
        OptionError: The job does not exist, or removing it is not safe.
        LayoutChangedError: Partitions are being added.
        StorageError: The store failed. Repeat the call.
        LogNotFoundError, FormatError: The log cannot be read.
    """
    own = plans_of(log, job)
    for plan in own:
        if _owner(plan) != job:
            raise OptionError(
                f"job {job!r} is a part of job {_owner(plan)!r}. Nothing was removed. Name that job.", job=job
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
                # Without its plan, a user cannot abort the open group, and other writers wait for it.
                abort_open_group(log, plan, kept.job)
                log.forget(plan)
            result = True
    return result


def older_jobs(log: Backend, now_ms: int, age_ms: int) -> list[Kept]:
    """Return the jobs that are complete and idle for at least ``age_ms``, and at least an hour, sorted by name.

    Skip a job with a damaged entry, and log a warning.
    """
    result = []
    plans, damaged = _plans_by_job(log)
    for job in sorted({*plans, *damaged}):
        try:
            # A damaged plan does not show its job, but the name of each part begins with that of its job.
            for name in damaged:
                if f"{name}.".startswith(f"{job}."):
                    raise damaged[name]
            kept = _kept(log, job, plans[job])
        except (FormatError, ChunkDamagedError) as error:
            _LOG.warning("job %s was skipped: %s", job, error.message)
        else:
            if kept.complete and now_ms - kept.newest_ms >= max(age_ms, _straggler_ms()):
                result.append(kept)
    return result


def plans_of(log: Backend, job: str) -> list[Plan]:
    """Return the plans of a job, or the plan of a part of a job. Raises OptionError if the log knows no such job."""
    names = [each for each in log.jobs() if each == job or each.startswith(f"{job}.")]
    plans = [plan for plan in map(log.plan, names) if plan is not None and job in (plan.job, _owner(plan))]
    if not plans:
        raise OptionError(
            f"the log knows no job {job!r}. Nothing was changed; 'spark-cas describe' lists all jobs.", job=job
        )
    return plans


def _plans_by_job(log: Backend) -> tuple[dict[str, list[Plan]], dict[str, FormatError]]:
    """Return the plans of each job by the name that the user gave, and the errors of damaged plans by their names."""
    result: dict[str, list[Plan]] = {}
    damaged: dict[str, FormatError] = {}
    for name in log.jobs():
        try:
            plan = log.plan(name)
        except FormatError as error:
            damaged[name] = error
        else:
            if plan is not None:
                result.setdefault(_owner(plan), []).append(plan)
    return result, damaged


def _owner(plan: Plan) -> str:
    """Return the name that the user gave to the job of a plan."""
    return plan.continues or plan.round_of or plan.job


def _kept(log: Backend, job: str, plans: Iterable[Plan]) -> Kept:
    """Return the records of a job with these plans, the first plan first, because the others depend on it."""
    ordered = sorted(plans, key=lambda plan: (bool(plan.continues), plan.layout_epoch, plan.job))
    rows, newest_ms, complete = 0, 0, True
    for plan in ordered:
        done, own = _recorded(log, plan)
        rows += sum(each.rows for each in own)
        times = [each.committed_at_ms for each in own] + ([] if done is None else [done.completed_at_ms])
        newest_ms = max(newest_ms, plan.pinned_at_ms, *times)
        complete = complete and (done is not None or not _is_open(plan, ordered, own))
    return Kept(job, tuple(ordered), rows, complete, newest_ms)


def _recorded(log: Backend, plan: Plan) -> tuple[Completion | None, list[Progress]]:
    """Return the completion of a plan, if there is one, and the rows of its job by partition."""
    done = log.completion(plan.job)
    if done is not None:
        return done, [each.progress for each in done.partitions]
    entries = log.progress_of(range(min(plan.partitions, log.layout().partitions)), plan.job)
    return None, [each for each in entries if each is not None]


def _is_open(plan: Plan, plans: Iterable[Plan], own: Iterable[Progress]) -> bool:
    """Return whether an incomplete plan makes its job incomplete.

    It does not if partitions were added since, and the remaining rows have a plan of their own. Nor does a round
    without rows.
    """
    if any(each.continues and each.layout_epoch > plan.layout_epoch for each in plans):
        return False
    return not plan.round_of or any(each.rows for each in own)


def _straggler_ms() -> float:
    """Return how long a task may run after its job has ended, at most."""
    return 1000 * timing.current().straggler_age


def _require_safe(kept: Kept, now_ms: int) -> None:
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


class State(StrEnum):
    """The state of a job."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    """It runs, or it was interrupted."""
    UNDECIDED = "undecided"
    """Its newest rows are neither committed nor aborted."""
    UNREADABLE = "unreadable"
    """Its plan, another entry or a chunk of it is damaged."""
    STREAM = "stream"
    """A stream is never complete."""


@dataclass(frozen=True, slots=True)
class JobPartition:
    """The visible rows of a job in a partition."""

    partition: int
    rows: int
    base_offset: int
    end_offset: int
    """The end offset of its newest chunk. Rows of other writers may be between its chunks."""


@dataclass(frozen=True, slots=True)
class JobState:
    """A job of a log. Times are in milliseconds since 1970."""

    job: str
    """The name that the user gave."""
    state: State
    rows: int
    partitions: tuple[JobPartition, ...]
    planned_at_ms: int
    """0 if an older version recorded the plan, or if the plan is unreadable."""
    newest_chunk_ms: int | None
    """The time of its newest chunk; None if no chunk is known."""
    completed_at_ms: int | None
    has_load_lock: bool
    atomic: bool
    error: ConditionalLogError | None = None
    """Why the job is unreadable."""


def job_states(log: Backend) -> Iterator[JobState]:
    """Yield the state of each job, sorted by name.

    A damaged job is unreadable, and the other jobs follow.
    """
    locked = {each.job for each in log.load_locks().held}
    by_job, damaged = _plans_by_job(log)
    for job in sorted({*by_job, *damaged}):
        plans = by_job.get(job, [])
        has_lock = not locked.isdisjoint({job, *(each.job for each in plans)})
        try:
            if job in damaged:
                raise damaged[job]
            yield _state_of(log, job, plans, has_lock=has_lock)
        except (FormatError, ChunkDamagedError) as error:
            yield _unreadable(job, plans, error, has_lock=has_lock)


def _state_of(log: Backend, job: str, plans: list[Plan], *, has_lock: bool) -> JobState:
    known: list[Progress] = []
    completions: list[Completion] = []
    is_open = undecided = False
    for plan in plans:
        try:
            done, own = _recorded(log, plan)
            undecided |= done is None and bool(undecided_progress(log, plan))
        except UndecidedError:
            undecided, done, own = True, None, []
        known += own
        if done is not None:
            completions.append(done)
        else:
            is_open |= _is_open(plan, plans, own)
    state = State.INCOMPLETE if is_open else State.COMPLETE
    if any(each.stream for each in plans):
        state = State.STREAM
    return JobState(
        job,
        State.UNDECIDED if undecided else state,
        sum(each.rows for each in known),
        tuple(_by_partition(known)),
        min(each.pinned_at_ms for each in plans),
        max((each.committed_at_ms for each in known), default=None),
        None if is_open else max((each.completed_at_ms for each in completions), default=None),
        has_lock,
        any(each.whole for each in plans),
    )


def _unreadable(job: str, plans: list[Plan], error: ConditionalLogError, *, has_lock: bool) -> JobState:
    planned_at_ms = min((each.pinned_at_ms for each in plans), default=0)
    atomic = any(each.whole for each in plans)
    return JobState(job, State.UNREADABLE, 0, (), planned_at_ms, None, None, has_lock, atomic, error)


def _by_partition(known: Iterable[Progress]) -> Iterator[JobPartition]:
    entries: dict[int, list[Progress]] = {}
    for each in known:
        entries.setdefault(each.partition, []).append(each)
    for partition, own in sorted(entries.items()):
        base, end = min(each.base_offset for each in own), max(each.end_offset for each in own)
        yield JobPartition(partition, sum(each.rows for each in own), base, end)


_LOG = logging.getLogger("spark_cas")


def removed_rows(log: Backend, loaded: Sequence[Progress]) -> tuple[int, ...]:
    """Return the maximum number of rows that each of these partitions has removed.

    The number is computed from the oldest retained offset, and offsets also count transaction markers. ``loaded``
    are the ledger entries of the job. Raises the errors of `Backend.bounds_of`.
    """
    if not log.removes_by_itself:
        return (0,) * len(loaded)
    bounds = log.bounds_of([each.partition for each in loaded], waiting=False)
    return tuple(
        min(each.rows, max(0, min(kept.start_offset, each.end_offset) - each.base_offset))
        for each, kept in zip(loaded, bounds, strict=True)
    )


def log_removed_rows(log: Backend, completion: Completion) -> None:
    """Log a warning if the log has already removed rows of a load that has just completed."""
    loaded = [each.progress for each in completion.partitions if each.progress.rows]
    try:
        removed = sum(removed_rows(log, loaded))
    except ConditionalLogError as error:
        _LOG.warning(
            "the rows of job %s were appended, and not checked afterwards: %s", completion.job, error.message
        )
        return
    if removed:
        _LOG.warning(
            "up to %d of %d rows of job %s were removed from the log while it was loading: retention removes rows "
            "with old timestamps (retention.ms), or the log was trimmed",
            removed,
            completion.rows,
            completion.job,
        )
