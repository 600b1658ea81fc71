"""Progress of a bulk load: rows in the log from the ledger, and pending work from Spark's stages."""

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
from spark_cas.spark.jvm import java_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENCE_MS = 1000
"""Deadline of a ledger read in milliseconds. If it passes, the previous row count is shown."""
_QUIET_SECONDS = 5
"""Time in seconds before a wait is shown. Shorter waits are normal."""


class Phase(StrEnum):
    """Phase of a load."""

    STARTING = "starting"
    """Spark plans the query. No task is running."""
    ROUTING = "routing"
    """Tasks read the input and shuffle the rows by log partition."""
    APPENDING = "appending"
    VERIFYING = "verifying"
    """Tasks compare the rows of a complete job with its digest in the log."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of a load at one point in time."""

    phase: Phase
    rows: int
    """Rows of the job in the log. While routing or verifying, rows that were read so far."""
    total: int | None = None
    """All rows of the input; None until they are routed."""
    tasks: int | None = None
    """Tasks of the phase; None if rows show the progress."""
    tasks_done: int = 0
    rows_per_second: float | None = None
    seconds_left: float | None = None
    waiting: str | None = None
    """Cause and duration of a wait: an unresponsive log or another load."""

    @property
    def share(self) -> float | None:
        """Completed share of the phase, from 0 to 1; None if it is not known."""
        if self.tasks is not None:
            return self.tasks_done / max(1, self.tasks)
        return None if self.total is None else min(1.0, self.rows / max(1, self.total))


@dataclass(frozen=True, slots=True)
class Stages:
    """Spark stages of a load: the first routes the rows, the last appends them."""

    rows: int
    """Rows that were read so far; all rows of the input after routing."""
    tasks: int
    """Number of tasks in the running stage."""
    tasks_done: int
    routed: bool


class StageWatch:
    """Watch the Spark jobs that the calling thread starts after construction."""

    def __init__(self, spark: "SparkSession", job: str, end_markers: int) -> None:
        self._context: Any = None
        self._end_markers = end_markers
        """The number of rows that `route` adds to those of the input."""
        self._group = f"bulk load {job} {time.monotonic_ns()}"
        self._seen = Stages(rows=0, tasks=0, tasks_done=0, routed=False)
        # With Spark Connect, the stages are on the server. Progress is then from the ledger only.
        with suppress(Exception):
            spark.sparkContext.setJobGroup(self._group, f"bulk load of job {job}")
            self._context = spark.sparkContext

    def stages(self) -> Stages | None:
        """Return the current stages; None if Spark does not report them."""
        if self._context is None:
            return None
        try:
            self._seen = self._stages() or self._seen
        except Exception:  # noqa: BLE001 - a progress failure must not stop the load
            self._context = None
            return None
        return self._seen

    def _stages(self) -> Stages | None:
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(each) for each in tracker.getJobIdsForGroup(self._group)]
        numbers = sorted({number for job in jobs if job for number in job.stageIds})
        if not numbers:
            return None
        store = java_context(self._context).statusStore()
        found = [store.lastStageAttempt(number) for number in numbers]
        routing = next((each for each in found if each.shuffleWriteRecords()), found[0])
        routed = routing.status().toString() == "COMPLETE"
        running = found[-1] if routed else routing
        # Spark counts shuffle records when a task ends, and input records every few seconds.
        rows = max(routing.shuffleWriteRecords() - self._end_markers, 0 if routed else routing.inputRecords())
        return Stages(rows, running.numTasks(), running.numCompleteTasks(), routed=routed)


class LedgerWatch:
    """Count the rows of a job in the log. It opens its own backend, because backends are not thread-safe."""

    def __init__(self, spec: AnySpec, job: str) -> None:
        self._spec = spec
        self._job = job
        self._log: Backend | None = None
        self._at = job, ""
        """Name and commit group under which the job currently appends."""
        self._earlier = 0
        self._rows: dict[int, int] = {}
        self._complete: set[int] = set()
        self._answered = time.monotonic()
        self._lock = False
        self._ahead: tuple[str, float] | None = None
        """The job that holds the load lock, and the time at which this was first seen."""

    def rows(self) -> int:
        """Return the rows of the job in all partitions. If the log is unavailable, return the last known count."""
        try:
            with within(_PATIENCE_MS / 1000):
                self._look()
        except StorageError:
            pass
        except ConditionalLogError:
            # The log replied, for example that it does not exist yet.
            self._answered = time.monotonic()
        else:
            self._answered = time.monotonic()
        return self._earlier + sum(self._rows.values())

    def waiting(self) -> str | None:
        """Return the cause and duration of a wait of at least five seconds; None if there is none."""
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
        """Find the load that blocks this one, until this load has a lock or rows in the log."""
        if self._lock or self._rows:
            return
        load_locks = log.load_locks()
        others = load_locks.in_the_way(self._job, ((0, log.layout().partitions),))
        self._lock = load_locks.of(self._job) is not None
        if self._lock or not others:
            self._ahead = None
        elif self._ahead is None or self._ahead[0] != others[0].job:
            self._ahead = others[0].job, time.monotonic()

    def _follow(self, log: Backend) -> int:
        """Switch to the current plan and group, which change with an expansion or a new commit group.

        Returns:
            the rows that the job appended before the expansion
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
    """Combine the progress of ledger and stages, and compute the speed."""

    def __init__(self, ledger: LedgerWatch | None, stages: StageWatch, *, verifying: bool) -> None:
        self._ledger = ledger
        """None if the load has no ledger entry. Progress is then from the stages only."""
        self._stages = stages
        self._verifying = verifying
        self._begun = time.monotonic()
        self._appending: tuple[float, int] | None = None
        """Time at which appending began, and the rows of earlier runs at that time."""

    def look(self) -> Snapshot:
        """Return the current state of the load."""
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
