"""How far a bulk load is: the ledger tells what is in the log, Spark's stages tell what is on the way."""

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from spark_cas.core.errors import ConditionalLogError, StorageError
from spark_cas.log.backend import Backend
from spark_cas.log.load.after_expansion import plan_now
from spark_cas.log.load.whole_load import with_group
from spark_cas.log.open import AnySpec, for_a_look, open_log
from spark_cas.log.patience import within

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENCE_MS = 1000
"""Of a chunk that is on its way, the count before it is as good."""
_QUIET_SECONDS = 5
"""A log that gives no answer for less is nobody's business."""


class Phase(StrEnum):
    """What a load is doing."""

    STARTING = "starting"
    """Spark plans; no task runs yet."""
    ROUTING = "routing"
    """Input is read, and rows are brought to the task of their log partition."""
    APPENDING = "appending"
    VERIFYING = "verifying"
    """The rows of a complete job are compared with what the log took."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A load at one moment."""

    phase: Phase
    rows: int
    """Rows of the job in the log; before any can be there, and when verifying, rows read so far."""
    total: int | None = None
    """All rows of the input; known once they are routed."""
    tasks: int | None = None
    """Tasks of the phase, where rows alone do not tell how much of it is done."""
    tasks_done: int = 0
    rows_per_second: float | None = None
    seconds_left: float | None = None
    waiting: str | None = None
    """What the load has waited for, and for how long: a log that gives no answer, or another load."""

    @property
    def share(self) -> float | None:
        """How much of the phase is done, 0 to 1; None when that is not known."""
        if self.tasks is not None:
            return self.tasks_done / max(1, self.tasks)
        return None if self.total is None else min(1.0, self.rows / max(1, self.total))


@dataclass(frozen=True, slots=True)
class Stages:
    """Spark's stages of a load: the first routes, the last appends."""

    rows: int
    """Rows read so far; all of the input once they are routed."""
    tasks: int
    """Of the stage that is running."""
    tasks_done: int
    routed: bool


class StageWatch:
    """Watches the Spark jobs that the calling thread starts from now on."""

    def __init__(self, spark: "SparkSession", job: str) -> None:
        self._context: Any = None
        self._group = f"bulk load {job} {time.monotonic_ns()}"
        self._seen = Stages(rows=0, tasks=0, tasks_done=0, routed=False)
        # On Spark Connect the stages are the server's: progress is then told from the ledger alone.
        with suppress(Exception):
            spark.sparkContext.setJobGroup(self._group, f"bulk load of job {job}")
            self._context = spark.sparkContext

    def stages(self) -> Stages | None:
        """The stages as they are now; None when Spark does not tell."""
        if self._context is None:
            return None
        try:
            self._seen = self._stages() or self._seen
        except Exception:  # noqa: BLE001 - what is shown of a load must never end it: the ledger tells the rest
            self._context = None
            return None
        return self._seen

    def _stages(self) -> Stages | None:
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(each) for each in tracker.getJobIdsForGroup(self._group)]
        numbers = sorted({number for job in jobs if job for number in job.stageIds})
        if not numbers:
            return None
        store = self._context._jsc.sc().statusStore()  # noqa: SLF001 - Python has no other way to it
        found = [store.lastStageAttempt(number) for number in numbers]
        routing = next((each for each in found if each.shuffleWriteRecords()), found[0])
        routed = routing.status().toString() == "COMPLETE"
        running = found[-1] if routed else routing
        # Records of the shuffle are counted when a task ends, those of the input every few seconds.
        rows = max(routing.shuffleWriteRecords(), 0 if routed else routing.inputRecords())
        return Stages(rows, running.numTasks(), running.numCompleteTasks(), routed=routed)


class LedgerWatch:
    """Counts the rows of a job in the log, with a log of its own: backends are not shared between threads."""

    def __init__(self, spec: AnySpec, job: str) -> None:
        self._spec = spec
        self._job = job
        self._log: Backend | None = None
        self._at = job, ""
        """The name under which its ledger goes on, and its group."""
        self._earlier = 0
        self._rows: dict[int, int] = {}
        self._complete: set[int] = set()
        self._answered = time.monotonic()
        self._granted = False
        self._ahead: tuple[str, float] | None = None
        """The job that is granted what this one is not yet, and since when that was seen."""

    def rows(self) -> int:
        """Rows of the job in all partitions; what was known last when the log cannot be asked."""
        try:
            with within(_PATIENCE_MS / 1000):
                self._look()
        except StorageError:
            pass
        except ConditionalLogError:
            # Such as that the log is not there yet: an answer, if not one that tells of rows.
            self._answered = time.monotonic()
        else:
            self._answered = time.monotonic()
        return self._earlier + sum(self._rows.values())

    def waiting(self) -> str | None:
        """What is waited for since when, once that is no moment any more: a log without an answer, another load."""
        silent_for = time.monotonic() - self._answered
        if silent_for >= _QUIET_SECONDS:
            return f"waiting for {self._spec.server} since {silent_for:.0f} s"
        if self._ahead is None:
            return None
        job, since = self._ahead
        waited = time.monotonic() - since
        return f"waiting for job {job}, which is at work, since {waited:.0f} s" if waited >= _QUIET_SECONDS else None

    def _look(self) -> None:
        if self._log is None:
            self._log = open_log(for_a_look(self._spec, _PATIENCE_MS))
        self._look_ahead(self._log)
        earlier = self._follow(self._log)
        for partition in range(self._log.layout().partitions):
            self._ask(self._log, partition)
        self._earlier = earlier

    def _look_ahead(self, log: Backend) -> None:
        """Which load this one waits for, until it has a grant, or rows in the log without any."""
        if self._granted or self._rows:
            return
        grants = log.grants()
        others = grants.in_the_way(self._job, ((0, log.layout().partitions),))
        self._granted = grants.of(self._job) is not None
        if self._granted or not others:
            self._ahead = None
        elif self._ahead is None or self._ahead[0] != others[0].job:
            self._ahead = others[0].job, time.monotonic()

    def _follow(self, log: Backend) -> int:
        """Go by the plan of now, once the load goes on behind an expansion, or in another group.

        Returns what it had appended before the expansion.
        """
        plan = plan_now(log, self._job)
        if plan is None:
            return 0
        at = plan.job, with_group(log, plan).group
        if at != self._at:
            self._at, self._rows, self._complete = at, {}, set()
        return plan.earlier_rows

    def _ask(self, log: Backend, partition: int) -> None:
        if partition in self._complete:
            return
        progress = log.progress(partition, *self._at)
        if progress is not None:
            self._rows[partition] = progress.rows
            if progress.complete:
                self._complete.add(partition)


class LoadWatch:
    """Puts both together, and works out the speed."""

    def __init__(self, ledger: LedgerWatch | None, stages: StageWatch, *, verifying: bool) -> None:
        self._ledger = ledger
        """None for a load that none has: its stages alone tell of it."""
        self._stages = stages
        self._verifying = verifying
        self._begun = time.monotonic()
        self._appending: tuple[float, int] | None = None
        """When appending began, and how many rows an earlier run had left by then."""

    def look(self) -> Snapshot:
        """The load as it is now."""
        rows = 0 if self._ledger is None else self._ledger.rows()
        waiting = None if self._ledger is None else self._ledger.waiting()
        return replace(self._look(rows), waiting=waiting)

    def _look(self, rows: int) -> Snapshot:
        stages = self._stages.stages()
        if stages is not None and not stages.tasks:
            return Snapshot(Phase.STARTING, rows=0)
        if self._verifying and stages is not None:
            return Snapshot(Phase.VERIFYING, stages.rows, tasks=stages.tasks, tasks_done=stages.tasks_done)
        if self._ledger is None:
            if stages is None:
                return Snapshot(Phase.STARTING, rows=0)
            phase = Phase.APPENDING if stages.routed else Phase.ROUTING
            return Snapshot(phase, stages.rows, tasks=stages.tasks, tasks_done=stages.tasks_done)
        now = time.monotonic()
        if stages is not None and not stages.routed:
            return _routing(stages, now - self._begun)
        if self._appending is None:
            self._appending = now, rows
        since, before = self._appending
        return _appending(rows, stages.rows if stages else None, now - since, rows - before)


def _routing(stages: Stages, seconds: float) -> Snapshot:
    speed = stages.rows / seconds if stages.rows else None
    return Snapshot(
        Phase.ROUTING, stages.rows, tasks=stages.tasks, tasks_done=stages.tasks_done, rows_per_second=speed
    )


def _appending(rows: int, total: int | None, seconds: float, appended: int) -> Snapshot:
    speed = appended / seconds if appended and seconds else None
    left = max(0, total - rows) / speed if total is not None and speed else None
    return Snapshot(Phase.APPENDING, rows, total, rows_per_second=speed, seconds_left=left)
