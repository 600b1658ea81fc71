"""The state of each job of a log: whether it is complete, its rows, times and offsets."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from spark_cas.core.errors import ChunkDamagedError, ConditionalLogError, FormatError, UndecidedError
from spark_cas.core.plan import Completion, Plan, Progress
from spark_cas.log.backend import Backend
from spark_cas.log.forgetting import is_superseded, plans_by_job
from spark_cas.log.load.atomic_load import undecided_progress


class State(StrEnum):
    """The state of a job."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    """It runs, or it was interrupted."""
    UNDECIDED = "undecided"
    """Its newest rows are neither committed nor aborted."""
    UNREADABLE = "unreadable"
    """An entry or a chunk of it is damaged."""
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
    """0 if an older version recorded the plan."""
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

    Raises:
        FormatError, StorageError, LogNotFoundError.
    """
    locked = {each.job for each in log.load_locks().held}
    for job, plans in plans_by_job(log).items():
        has_lock = not locked.isdisjoint({job, *(each.job for each in plans)})
        try:
            yield _state_of(log, job, plans, has_lock=has_lock)
        except (FormatError, ChunkDamagedError) as error:
            yield _unreadable(job, plans, error, has_lock=has_lock)


def _state_of(log: Backend, job: str, plans: list[Plan], *, has_lock: bool) -> JobState:
    known: list[Progress] = []
    completions: list[Completion] = []
    open_plans: list[Plan] = []
    undecided = False
    partitions = log.layout().partitions
    for plan in plans:
        done = log.completion(plan.job)
        if done is not None:
            completions.append(done)
            known += [each.progress for each in done.partitions]
            continue
        try:
            result = log.progress_of(range(min(plan.partitions, partitions)), plan.job)
            undecided |= bool(undecided_progress(log, plan))
        except UndecidedError:
            undecided = True
            result = ()
        own = [each for each in result if each is not None]
        known += own
        if not (is_superseded(plan, plans) or (plan.round_of and not any(each.rows for each in own))):
            open_plans.append(plan)
    return JobState(
        job,
        _state(plans, open_plans, undecided=undecided),
        sum(each.rows for each in known),
        tuple(_by_partition(known)),
        min(each.pinned_at_ms for each in plans),
        max((each.committed_at_ms for each in known), default=None),
        None if open_plans else max((each.completed_at_ms for each in completions), default=None),
        has_lock,
        any(each.whole for each in plans),
    )


def _unreadable(job: str, plans: list[Plan], error: ConditionalLogError, *, has_lock: bool) -> JobState:
    planned_at_ms = min(each.pinned_at_ms for each in plans)
    atomic = any(each.whole for each in plans)
    return JobState(job, State.UNREADABLE, 0, (), planned_at_ms, None, None, has_lock, atomic, error)


def _state(plans: list[Plan], open_plans: list[Plan], *, undecided: bool) -> State:
    if undecided:
        return State.UNDECIDED
    if any(each.stream for each in plans):
        return State.STREAM
    return State.INCOMPLETE if open_plans else State.COMPLETE


def _by_partition(known: Iterable[Progress]) -> Iterator[JobPartition]:
    """Yield the rows of all plans of a job by partition."""
    entries: dict[int, list[Progress]] = {}
    for each in known:
        entries.setdefault(each.partition, []).append(each)
    for partition, own in sorted(entries.items()):
        base, end = min(each.base_offset for each in own), max(each.end_offset for each in own)
        yield JobPartition(partition, sum(each.rows for each in own), base, end)
