"""Load locks: a load with expected offsets locks its partitions before it plans, and releases them at its end.

Without locks, two concurrent loads would plan with the same end offsets, and each would reject some rows of the
other. With a lock, the second load starts after the first is complete. No append depends on the lock. A load that
loses its lock by mistake fails with a conflict at most, and no row is duplicated or lost.

A load releases its lock when it completes, fails or gives up. If it crashed, another load takes the lock over. On the
same host, the other load detects that the process has exited, and takes over at once. On another host, it takes over
after a time without appends that is longer than the retry deadline of a live load. If a failed load could not release
its lock, the lock counts as active while the process of the load runs. The new owner records the takeover first, so
that only one load takes over. It then fences the writers of the previous load, and plans.
"""

import logging
import os
import random
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from spark_cas.core.errors import ConditionalLogError, LoadInProgressError, OptionError, StorageError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.load_locks import LoadLock, ranges_of
from spark_cas.core.plan import Plan
from spark_cas.log import clock, timing
from spark_cas.log.backend import Backend
from spark_cas.log.load.after_expansion import plan_now
from spark_cas.log.load.atomic_load import abort_group, is_committed, undecided_progress, with_group
from spark_cas.log.load.attempts import rival_tries
from spark_cas.log.timing import LONGEST_TRANSACTION_MS, RETRY_TIMEOUT_MS

_PROC = Path("/proc")

_SILENT_SHARE = 1.5
"""The time without appends after which a load counts as crashed, as a multiple of the retry deadline. A live load
appends or fails within that deadline."""

_READS = 20
"""The number of checks for new appends of another load within that time."""

_JITTER = random.SystemRandom()
_LOG = logging.getLogger("spark_cas")


@dataclass(frozen=True, slots=True)
class Applicant:
    """A run of a load that requests a lock."""

    job: str
    run: str
    process: str = ""
    """The process of the run (`process_name`). When it exits, the run is over."""
    wait_seconds: float = 0.0
    """The maximum wait for active loads, in seconds; 0 to fail at once."""
    silent_seconds: float | None = None
    """The seconds without appends after which another load counts as crashed; None for `gone_after`."""
    batch_id: int | None = None
    """The micro-batch that needs the lock; None for a load."""

    def gone_after(self, log: Backend) -> float:
        """Return the seconds without appends after which another load counts as crashed.

        It is longer than the default retry deadline and the retry deadline of this log.
        """
        if self.silent_seconds is not None:
            return self.silent_seconds
        return _SILENT_SHARE * max(RETRY_TIMEOUT_MS / 1000, log.patience_seconds)


def acquire_lock(
    log: Backend, applicant: Applicant, wanted: ExpectedOffsets, *, whole: bool = False, partitions: int | None = None
) -> LoadLock | None:
    """Acquire the lock of all partitions with an expected offset, and wait until no other load has one of them.

    An atomic load locks all partitions if it has any expected offset, or if its open chunks block other writers. This
    prevents a deadlock between two atomic loads. A run that has the lock gets it again, and so does another run of
    the same job.

    The result is None if the load needs no lock, because no partition has an expected offset. A caller that has just
    read the partition count of the log passes it.

    Raises:
        LoadInProgressError: Another load was still active after the maximum wait.
        OptionError: The expected offsets name a partition that the log does not have.
    """
    claims = wanted.resolve((0,) * (partitions or log.layout().partitions))
    of_all = whole and (not log.group_in_process or any(expected is not None for expected in claims))
    ranges = ranges_of(each for each, expected in enumerate(claims) if of_all or expected is not None)
    if not ranges:
        return None
    waiting = _Waiting(log, applicant)
    while True:
        load_locks = log.load_locks()
        own = load_locks.of(applicant.job)
        if own is not None and own.run == applicant.run:
            break
        others = load_locks.in_the_way(applicant.job, ranges)
        alive = [each for each in others if not waiting.has_ended(each)]
        if alive:
            waiting.wait_for(alive[0])
            continue
        if not others and (crowd := load_locks.leaving_no_room(applicant.job)):
            others = tuple(islice(filter(waiting.has_ended, crowd), 1))
            if not others:
                waiting.wait_for_room(crowd)
                continue
            for each in others:
                # The later owners of these partitions do not see this takeover, so fence the writers now.
                _fence(log, each, (each.job, *each.after))
        ours = LoadLock(
            applicant.job, applicant.run, ranges, applicant.process, clock.now_ms(), batch_id=applicant.batch_id
        )
        changed = load_locks.with_lock(ours, over=others)
        if log.put_load_locks(changed):
            own = changed.held[-1]
            for each in others:
                _abort_batch(log, each)
            break
        waiting.pause()
    _fence(log, own, own.after)
    return own


def is_replaced(log: Backend, lock: LoadLock | None) -> bool:
    """Return whether another run of the job holds its lock now. Raises StorageError, FormatError."""
    held = None if lock is None else log.load_locks().of(lock.job)
    return lock is not None and held is not None and held.run != lock.run


def release_lock(log: Backend, lock: LoadLock | None) -> None:
    """Release the lock at the end of a run, unless another run of the job holds it.

    If the release fails, the function logs a warning and raises no error. Another load then takes the lock over after
    the process has exited, or after the time without appends.
    """
    if lock is not None:
        try:
            _end(log, lock)
        except ConditionalLogError as error:
            _LOG.warning("the lock of job %s was not released: %s", lock.job, error.message)


def abort_job(log: Backend, job: str, *, dry_run: bool = False) -> LoadLock | None:
    """Release the lock of a job that is not running, abort its commit group, and fence its writers.

    If the job is not atomic, its appended rows stay. With ``dry_run``, the function only checks. It returns the
    released lock, or None if the job had only an open commit group.

    Raises:
        OptionError: The job blocks no other load.
        LogNotFoundError, StorageError, FormatError: The log cannot be read.
    """
    lock, plan = log.load_locks().of(job), plan_now(log, job)
    if lock is None:
        if plan is not None and _abort_undecided(log, plan, dry_run=dry_run):
            return None
        raise OptionError(
            f"job {job!r} has no load lock and no undecided rows, so no other load waits for it. Nothing was "
            f"changed. 'spark-cas describe' lists the jobs that have one.",
            job=job,
        )
    if not dry_run:
        _abort_batch(log, lock)
        _fence(log, lock, (job, *lock.after))
        _end(log, lock)
    return lock


def _abort_undecided(log: Backend, plan: Plan, *, dry_run: bool) -> bool:
    """Abort the open commit group of a load. Return False if it has none, or if the load is committed."""
    # A transaction of another process is not visible here, but it can be aborted.
    unseen = log.group_in_process and plan.whole and not plan.stream and log.completion(plan.job) is None
    if not (unseen or undecided_progress(log, plan)):
        return False
    return not is_committed(log, with_group(log, plan)) if dry_run else abort_group(log, plan)


def _end(log: Backend, lock: LoadLock) -> None:
    for _ in rival_tries():
        load_locks = log.load_locks()
        held = load_locks.of(lock.job)
        if held is None or held.run != lock.run or log.put_load_locks(load_locks.without(held)):
            return
    raise StorageError(
        "changing the load locks of the log: other loads changed them first, several times. Try again."
    )


def _abort_batch(log: Backend, lock: LoadLock) -> None:
    """Abort the commit group of a lock's micro-batch, if it has one."""
    plan = None if lock.batch_id is None else plan_now(log, lock.job)
    if plan is not None:
        abort_group(log, with_group(log, plan, lock.batch_id))


def abort_open_group(log: Backend, plan: Plan, job: str) -> None:
    """Abort the commit group of an incomplete atomic load, or of the micro-batch that has the load lock of a job."""
    lock = log.load_locks().of(job) if plan.stream else None
    if plan.whole and log.completion(plan.job) is None:
        abort_group(log, with_group(log, plan, None if lock is None else lock.batch_id))


def _fence(log: Backend, lock: LoadLock, jobs: Collection[str]) -> None:
    """Abort the open groups of jobs, and fence their writers in the lock's partitions."""
    for job in jobs:
        plan = plan_now(log, job)
        if plan is not None:
            abort_group(log, plan)
        for partition in sorted(lock.partitions) if plan else ():
            if plan is not None and partition < plan.partitions and plan.claims(partition):
                log.claim(partition, plan)  # if this fails, the writer is fenced already


@dataclass(frozen=True, slots=True)
class _LockState:
    """The last sign of life of a load, its time, and the time of the next check, on the monotonic clock."""

    sign: object
    since: float
    read_at: float


class _Waiting:
    """The state of a run that waits for a lock."""

    def __init__(self, log: Backend, applicant: Applicant) -> None:
        self._log = log
        self._applicant = applicant
        self._silent_seconds = applicant.gone_after(log)
        self._deadline = time.monotonic() + applicant.wait_seconds
        self._is_over = applicant.wait_seconds <= 0
        """Whether the current check started after the deadline."""
        self._pause_seconds = timing.current().first_pause
        self._say_at = time.monotonic()
        self._known: dict[tuple[str, str], _LockState] = {}
        """By job and run."""

    def has_ended(self, lock: LoadLock) -> bool:
        """Return whether the load that holds a lock is complete or has crashed."""
        running = is_process_running(lock.process)
        if running is False:
            return True
        plan = plan_now(self._log, lock.job)
        if plan is not None and self._log.completion(plan.job) is not None:
            return True
        limit = self._silent_seconds
        if plan is not None and plan.whole and self._log.group_in_process:
            # An open transaction shows no progress, but it times out.
            limit = max(limit, LONGEST_TRANSACTION_MS / 1000)
        # A process that runs may compute rows for hours before its first append.
        return running is None and self._silent_for(lock, plan) >= limit

    def wait_for(self, lock: LoadLock) -> None:
        """Pause because a load holds some of the partitions; raise LoadInProgressError after the maximum wait."""
        since = f"since {clock.time_text(lock.granted_at_ms)} UTC"
        self._wait(
            f"job {lock.job}, which has had the load lock of {_named(lock)} {since}",
            f"job {lock.job!r} has had the load lock of {_named(lock)} {since}. The expected offsets of this load "
            f"will not match when that job has appended its rows. Nothing was appended. Run this job again after "
            f"that job is complete{self._or_wait}. If that job does not run any more, 'spark-cas abort {lock.job}' "
            f"releases its lock.",
        )

    def wait_for_room(self, crowd: Sequence[LoadLock]) -> None:
        """Pause because the log has the maximum number of locks; raise LoadInProgressError after the maximum wait."""
        jobs = ", ".join(each.job for each in crowd)
        self._wait(
            f"one of {len(crowd)} jobs, the maximum number of load locks ({jobs})",
            f"{len(crowd)} jobs have load locks of other partitions, the maximum number: {jobs}. Nothing was "
            f"appended. Run this job again after one of them is complete{self._or_wait}. If one of them does not run "
            f"any more, 'spark-cas abort' with its name releases its lock.",
        )

    @property
    def _or_wait(self) -> str:
        """The option to wait longer, for errors; empty for streams, which do not have it."""
        return ", or set lockWaitTimeout, so that it waits" if self._applicant.batch_id is None else ""

    def _wait(self, whom: str, refusal: str) -> None:
        left = self._deadline - time.monotonic()
        if self._is_over:
            raise LoadInProgressError(refusal)
        if left <= 0:
            # Repeat the check after the deadline, because this process may have been suspended.
            self._is_over = True
            return
        if time.monotonic() >= self._say_at:
            self._say_at = time.monotonic() + timing.current().log_interval
            message = "job %s waits for %s: for %.0f s more at most."
            _LOG.warning(message, self._applicant.job, whom, left)
        self.pause()

    def pause(self) -> None:
        """Sleep for a random time, so that waiting loads do not retry at the same time."""
        time.sleep(self._pause_seconds * _JITTER.uniform(0.5, 1.5))
        self._pause_seconds = min(2 * timing.current().longest_pause, 2 * self._pause_seconds)

    def _silent_for(self, lock: LoadLock, plan: Plan | None) -> float:
        """Return the observed seconds without an append of a load; confirm a time over the limit with a new read."""
        began = time.monotonic()
        known = self._known.get((lock.job, lock.run))
        if known is not None and began < known.read_at and began - known.since < self._silent_seconds:
            return began - known.since
        sign = self._sign_of_life(lock, plan)
        now = time.monotonic()
        # A change may have happened just now. An unchanged state is certain only up to the start of the read.
        since = now if known is None or known.sign != sign else known.since
        self._known[lock.job, lock.run] = _LockState(sign, since, now + self._silent_seconds / _READS)
        return began - since

    def _sign_of_life(self, lock: LoadLock, plan: Plan | None) -> object:
        """Return a value that changes when a load appends: end offsets and, if it is atomic, its ledger entries."""
        partitions = sorted(each for each in lock.partitions if each < self._log.layout().partitions)
        ends = self._log.bounds_of(partitions, waiting=False)
        if plan is None or not plan.whole:
            return ends
        return ends, self._log.progress_of(partitions, plan.job, with_group(self._log, plan, lock.batch_id).group)


def _named(lock: LoadLock) -> str:
    return f"partition{'s' if len(lock.partitions) > 1 else ''} {lock.partitions_text}"


def process_name(pid: int) -> str:
    """Return the name of a running process, the same for all callers in its namespace. Empty if it does not run.

    It consists of the boot id of the machine, the PID namespace, the PID and the start time. It is empty if these are
    not available: only Linux has them.
    """
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespace = (_PROC / "self/ns/pid").readlink()
        # The last bracket ends the program's name, which may contain any character.
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        state, started = fields[0], fields[19]
    except (OSError, IndexError):
        return ""
    return "" if state in "ZX" else f"{boot}/{namespace}|{pid}/{started}"


def is_process_running(name: str) -> bool | None:
    """Return whether a process runs, None if that is unknown, as for a process on another machine."""
    place, _, process = name.partition("|")
    here, _, _ = process_name(os.getpid()).partition("|")
    if not place or place != here:
        return None
    return process_name(int(process.partition("/")[0])) == name
