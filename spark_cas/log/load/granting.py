"""One load at a time: whoever expects anything of partitions has a grant for them, from before its plan to its end.

Two honest loads at once would each find the same ends, and each refuse the other half of its rows. A grant lets the
second begin once the first is done. It is no lock: no append asks for it, so who loses one by mistake is refused like
anybody else who was overtaken, and no row is doubled or lost.

A grant ends with its load, whether that is complete, refused or given up. That of a load that was killed is taken
over: at once where its process is seen to have ended; where nothing is known of that, as on another machine, once its
partitions stood still for longer than a load that lives waits for anything. One that could not be given back, for the
log was not to be reached, passes for that of a load at work where its process is seen to live. Who takes over records
that first, so that only one does, and then fences the writers of the load before, ahead of its own plan.
"""

import logging
import random
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice

from spark_cas.core.errors import ConditionalLogError, GrantedError, OptionError, StorageError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.grants import Grant, ranges_of
from spark_cas.core.plan import Plan
from spark_cas.log import clock, running_process
from spark_cas.log.backend import Backend
from spark_cas.log.load.after_expansion import plan_now
from spark_cas.log.load.attempts import rival_tries
from spark_cas.log.load.whole_load import DECIDE_WITHIN_MS, abort_group, undecided_progress, with_group
from spark_cas.log.patience import PATIENCE_MS

_SILENT_SHARE = 1.5
"""Of a patience. A load that lives appends, or fails, within its own: one that did neither for longer is gone."""

_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 2.0
_SAY_EVERY_SECONDS = 30.0
_LOOKS = 20
"""So often within the time of silence it is looked whether another load has appended."""

_JITTER = random.SystemRandom()
_LOG = logging.getLogger("spark_cas")


@dataclass(frozen=True, slots=True)
class Applicant:
    """A run of a load that wants a grant."""

    job: str
    run: str
    process: str = ""
    """Whose end is the run's end (`spark_cas.log.running_process`)."""
    wait_seconds: float = 0.0
    """How long it waits for loads that are at work; 0: it is refused at once."""
    silent_seconds: float | None = None
    """After so long without news another load is gone; None for `gone_after`."""
    batch_id: int | None = None
    """The micro-batch that it wants it for, None for a load."""

    def gone_after(self, log: Backend) -> float:
        """The seconds without news, more than a load has patience: the usual one, or ours where that is more."""
        if self.silent_seconds is not None:
            return self.silent_seconds
        return _SILENT_SHARE * max(PATIENCE_MS / 1000, log.patience_seconds)


def obtain_grant(log: Backend, applicant: Applicant, wanted: ExpectedOffsets, *, whole: bool = False) -> Grant | None:
    """A grant for all partitions of which a load expects anything, once no other load has one of them.

    None where it expects nothing. One as a ``whole`` has it for all partitions where its chunks keep others waiting
    until they are decided, and where it expects anything at all: so no two wait for each other, each in a partition
    of its own. A run that has it gets it again, and so does another run of the same job.

    Raises GrantedError when a load that has one is still at work after the time to wait; LogNotFoundError,
    OptionError for a partition that the log does not have, StorageError, FormatError.
    """
    claims = wanted.resolve((0,) * log.layout().partitions)
    of_all = whole and (not log.group_in_process or any(expected is not None for expected in claims))
    ranges = ranges_of(each for each, expected in enumerate(claims) if of_all or expected is not None)
    if not ranges:
        return None
    waiting = _Waiting(log, applicant)
    while True:
        grants = log.grants()
        own = grants.of(applicant.job)
        if own is not None and own.run == applicant.run:
            break
        others = grants.in_the_way(applicant.job, ranges)
        alive = [each for each in others if not waiting.has_ended(each)]
        if alive:
            waiting.wait_for(alive[0])
            continue
        if not others and (crowd := grants.leaving_no_room(applicant.job)):
            others = tuple(islice(filter(waiting.has_ended, crowd), 1))
            if not others:
                waiting.wait_for_room(crowd)
                continue
            for each in others:
                # In partitions that are not ours: who gets these later does not hear of it.
                _fence(log, each, (each.job, *each.after))
        mine = Grant(
            applicant.job, applicant.run, ranges, applicant.process, clock.now_ms(), batch_id=applicant.batch_id
        )
        changed = grants.with_grant(mine, over=others)
        if log.put_grants(changed):
            own = changed.held[-1]
            for each in others:
                _abort_batch(log, each)
            break
        waiting.pause()
    _fence(log, own, own.after)
    return own


def is_taken_over(log: Backend, grant: Grant | None) -> bool:
    """Whether another run of the job has its grant now. Raises StorageError, FormatError."""
    held = None if grant is None else log.grants().of(grant.job)
    return grant is not None and held is not None and held.run != grant.run


def give_back(log: Backend, grant: Grant | None) -> None:
    """A run has ended: its grant is for others now, unless another run of the job has it.

    Nothing is raised: where it cannot be given back it is taken over once its process has ended, or is not seen.
    """
    if grant is not None:
        try:
            _end(log, grant)
        except ConditionalLogError as error:
            _LOG.warning("the grant of job %s was not given back: %s", grant.job, error.message)


def abort_job(log: Backend, job: str) -> Grant | None:
    """End the grant of a job that nobody runs any more, and its group, and fence its writers.

    Where its partitions are visible one by one, what it appended stays. None where it had no grant.

    Raises OptionError when it keeps nobody waiting; LogNotFoundError, StorageError, FormatError.
    """
    grant, plan = log.grants().of(job), plan_now(log, job)
    if grant is None:
        # Of a transaction nothing is seen from here, but it can be ended.
        unseen = plan is not None and plan.whole and log.group_in_process and not _has_ended(log, plan)
        if plan is None or not (unseen or undecided_progress(log, plan)):
            raise OptionError(
                f"job {job!r} is no load that has a grant, or rows that are undecided, so it keeps no other waiting. "
                f"Nothing was changed. 'spark-cas describe' lists those that do."
            )
        abort_group(log, plan)
        return None
    _abort_batch(log, grant)
    _fence(log, grant, (job, *grant.after))
    _end(log, grant)
    return grant


def _has_ended(log: Backend, plan: Plan) -> bool:
    return plan.stream or log.completion(plan.job) is not None


def _end(log: Backend, grant: Grant) -> None:
    for _ in rival_tries():
        grants = log.grants()
        held = grants.of(grant.job)
        if held is None or held.run != grant.run or log.put_grants(grants.without(held)):
            return
    raise StorageError("changing the grants of the log: others changed them first, again and again. Try again.")


def _abort_batch(log: Backend, grant: Grant) -> None:
    """End the group of the micro-batch that a grant is for, if it is for one."""
    plan = None if grant.batch_id is None else plan_now(log, grant.job)
    if plan is not None:
        abort_group(log, with_group(log, plan, grant.batch_id))


def _fence(log: Backend, grant: Grant, jobs: Collection[str]) -> None:
    """Where the log can, end what writers of jobs still have open in the partitions, and take no more of them."""
    for job in jobs:
        plan = plan_now(log, job)
        if plan is not None:
            abort_group(log, plan)
        for partition in sorted(grant.partitions) if plan else ():
            if plan is not None and partition < plan.partitions and plan.claims(partition):
                log.claim(partition, plan)  # refused, it is shut out already


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was last seen of a load, since when it is so, and when to look again."""

    sign: object
    since: float
    look_at: float


class _Waiting:
    """What an applicant saw of loads that are in its way, and for how long it has waited."""

    def __init__(self, log: Backend, applicant: Applicant) -> None:
        self._log = log
        self._applicant = applicant
        self._silent_seconds = applicant.gone_after(log)
        self._deadline = time.monotonic() + applicant.wait_seconds
        self._is_over = applicant.wait_seconds <= 0
        """Whether what is seen now was looked at when the time to wait was over."""
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self._say_at = time.monotonic()
        self._seen: dict[tuple[str, str], _Seen] = {}
        """By job and run."""

    def has_ended(self, grant: Grant) -> bool:
        """Whether the load that has a grant is complete, or gone."""
        running = running_process.is_running(grant.process)
        if running is False:
            return True
        plan = plan_now(self._log, grant.job)
        if plan is not None and self._log.completion(plan.job) is not None:
            return True
        limit = self._silent_seconds
        if plan is not None and plan.whole and self._log.group_in_process:
            # Nothing is seen of a transaction, but it ends by itself.
            limit = max(limit, DECIDE_WITHIN_MS / 1000)
        # One that is seen to run may calculate its rows for hours before it appends the first.
        return running is None and self._silent_for(grant, plan) >= limit

    def wait_for(self, grant: Grant) -> None:
        """Let a while pass, for a load has some of the partitions. Raises GrantedError when the time is over."""
        at_work = f"at work on {_named(grant)} since {clock.time_text(grant.granted_at_ms)} UTC"
        self._wait(
            f"job {grant.job}, which has been {at_work}",
            f"job {grant.job!r} has been {at_work}, and what this load expects of them would not hold any more. "
            f"Nothing was appended. Run this job again once that one is complete{self._or_wait}. If nobody runs that "
            f"one any more, 'spark-cas abort {grant.job}' ends its grant.",
        )

    def wait_for_room(self, crowd: Sequence[Grant]) -> None:
        """Let a while pass, for as many loads are at work as may be. Raises GrantedError when the time is over."""
        jobs = ", ".join(each.job for each in crowd)
        self._wait(
            f"one of {len(crowd)} jobs, as many as may be at work at once ({jobs})",
            f"{len(crowd)} loads are at work on other partitions, as many as may be at once: jobs {jobs}. Nothing "
            f"was appended. Run this job again once one of them is complete{self._or_wait}. If nobody runs one of "
            f"them any more, 'spark-cas abort' with its name ends its grant.",
        )

    @property
    def _or_wait(self) -> str:
        """A stream has no such option."""
        return "; option grantTimeout lets it wait for that" if self._applicant.batch_id is None else ""

    def _wait(self, whom: str, refusal: str) -> None:
        left = self._deadline - time.monotonic()
        if self._is_over:
            raise GrantedError(refusal)
        if left <= 0:
            # What was seen before that tells of before: this process, too, may stand still.
            self._is_over = True
            return
        if time.monotonic() >= self._say_at:
            self._say_at = time.monotonic() + _SAY_EVERY_SECONDS
            said = "job %s waits for %s: for %.0f s more at most."
            _LOG.warning(said, self._applicant.job, whom, left)
        self.pause()

    def pause(self) -> None:
        """Of random length, so that those who wait for one load do not all come at once."""
        time.sleep(self._pause_seconds * _JITTER.uniform(0.5, 1.5))
        self._pause_seconds = min(_LONGEST_PAUSE_SECONDS, 2 * self._pause_seconds)

    def _silent_for(self, grant: Grant, plan: Plan | None) -> float:
        """For how long a load was seen to append nothing, in seconds; what that is too long for is looked at anew."""
        began = time.monotonic()
        seen = self._seen.get((grant.job, grant.run))
        if seen is not None and began < seen.look_at and began - seen.since < self._silent_seconds:
            return began - seen.since
        sign = self._sign_of_life(grant, plan)
        now = time.monotonic()
        # What is new came at any time before now; what is not was so when the look began.
        since = now if seen is None or seen.sign != sign else seen.since
        self._seen[grant.job, grant.run] = _Seen(sign, since, now + self._silent_seconds / _LOOKS)
        return began - since

    def _sign_of_life(self, grant: Grant, plan: Plan | None) -> object:
        """What differs once a load has appended: where its partitions end, and what only it sees yet."""
        partitions = sorted(each for each in grant.partitions if each < self._log.layout().partitions)
        ends = self._log.bounds_of(partitions, waiting=False)
        if plan is None or not plan.whole:
            return ends
        return ends, self._log.progress_of(partitions, plan.job, with_group(self._log, plan, grant.batch_id).group)


def _named(grant: Grant) -> str:
    return f"partition{'s' if len(grant.partitions) > 1 else ''} {grant.told_partitions}"
