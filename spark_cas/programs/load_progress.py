"""Progress of a bulk load: rows in the log from the ledger, pending work from Spark's stages, and their display."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from spark_cas.core.errors import ConditionalLogError, StorageError
from spark_cas.log.backend import Backend
from spark_cas.log.deadline import within
from spark_cas.log.load.after_expansion import plan_now
from spark_cas.log.load.atomic_load import with_group
from spark_cas.log.open import AnySpec, open_log
from spark_cas.programs.program import print_line
from spark_cas.spark.jvm import java_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READ_TIMEOUT_MS = 1000
"""Deadline of a ledger read in milliseconds. If it passes, the previous row count is shown."""
_QUIET_SECONDS = 5
"""Time in seconds before a wait is shown. Shorter waits are normal."""
_POLL_SECONDS = 0.5
_MOST_SAMPLES = 1000
_FIRST_LINE_SECONDS, _LAST_LINE_SECONDS = 1.0, 30.0
_LINES_SHARE = 10
"""Divisor of the elapsed time for the interval between two lines. The interval is at least 1 s and at most 30 s."""
_POLLING_SHARE = 4
"""Minimum interval between two reads of the ledger, as a multiple of the duration of a read."""


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
class Sample:
    """Rows at one point in time, as in `Snapshot`."""

    seconds: float
    """Seconds since the start of the run or, in `LoadWatch`, of the watch."""
    phase: Phase
    rows: int


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
        self._latest = Stages(rows=0, tasks=0, tasks_done=0, routed=False)
        # With Spark Connect, the stages are on the server. Progress is then from the ledger only.
        with suppress(Exception):
            spark.sparkContext.setJobGroup(self._group, f"bulk load of job {job}")
            self._context = spark.sparkContext

    def stages(self) -> Stages | None:
        """Return the current stages; None if Spark does not report them."""
        if self._context is None:
            return None
        try:
            self._latest = self._read_stages() or self._latest
        except Exception:  # noqa: BLE001 - a progress failure must not stop the load
            self._context = None
            return None
        return self._latest

    def _read_stages(self) -> Stages | None:
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(each) for each in tracker.getJobIdsForGroup(self._group)]
        numbers = sorted({number for job in jobs if job for number in job.stageIds})
        if not numbers:
            return None
        store = java_context(self._context).statusStore()
        stages = [store.lastStageAttempt(number) for number in numbers]
        routing = next((each for each in stages if each.shuffleWriteRecords()), stages[0])
        routed = routing.status().toString() == "COMPLETE"
        running = stages[-1] if routed else routing
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
        self._responded_at = time.monotonic()
        self._has_lock = False
        self._blocking: tuple[str, float] | None = None
        """The job that has the load lock, and the time at which this watch first read that."""

    def rows(self) -> int:
        """Return the rows of the job in all partitions. If the log is unavailable, return the last known count."""
        try:
            with within(READ_TIMEOUT_MS / 1000):
                self._read()
        except StorageError:
            pass
        except ConditionalLogError:
            # The log responded, for example that it does not exist yet.
            self._responded_at = time.monotonic()
        else:
            self._responded_at = time.monotonic()
        return self._earlier + sum(self._rows.values())

    def waiting(self) -> str | None:
        """Return the cause and duration of a wait of at least five seconds; None if there is none."""
        silent_for = time.monotonic() - self._responded_at
        if silent_for >= _QUIET_SECONDS:
            return f"waiting for {self._spec.server} since {silent_for:.0f} s"
        if self._blocking is None:
            return None
        job, since = self._blocking
        waited = time.monotonic() - since
        return f"waiting for job {job}, which is at work, since {waited:.0f} s" if waited >= _QUIET_SECONDS else None

    def _read(self) -> None:
        if self._log is None:
            self._log = open_log(self._spec.with_patience(READ_TIMEOUT_MS))
        self._find_blocking_job(self._log)
        earlier = self._switch_plan(self._log)
        for partition in range(self._log.layout().partitions):
            progress = None if partition in self._complete else self._log.progress(partition, *self._at)
            if progress is not None:
                self._rows[partition] = progress.rows
                if progress.complete:
                    self._complete.add(partition)
        self._earlier = earlier

    def _find_blocking_job(self, log: Backend) -> None:
        """Find the job that blocks this one, until this job has a lock or rows in the log."""
        if self._has_lock or self._rows:
            return
        load_locks = log.load_locks()
        others = load_locks.in_the_way(self._job, ((0, log.layout().partitions),))
        self._has_lock = load_locks.of(self._job) is not None
        if self._has_lock or not others:
            self._blocking = None
        elif self._blocking is None or self._blocking[0] != others[0].job:
            self._blocking = others[0].job, time.monotonic()

    def _switch_plan(self, log: Backend) -> int:
        """Switch to the current plan and group, which change with an expansion or a new commit group.

        Returns the rows that the job appended before the expansion.
        """
        plan = plan_now(log, self._job)
        if plan is None:
            return 0
        at = plan.job, with_group(log, plan).group
        if at != self._at:
            self._at, self._rows, self._complete = at, {}, set()
        return plan.earlier_rows


class LoadWatch:
    """Combine the progress of ledger and stages, and compute the speed."""

    def __init__(self, ledger: LedgerWatch | None, stages: StageWatch, *, verifying: bool) -> None:
        self._ledger = ledger
        """None if the load has no ledger entry. Progress is then from the stages only."""
        self._stages = stages
        self._verifying = verifying
        self._began = time.monotonic()
        self.samples = [Sample(0.0, Phase.STARTING, 0)]
        """The states that were read, at most `_MOST_SAMPLES`. Of a long load, older ones are further apart."""
        self._appending: tuple[float, int] | None = None
        """Time at which appending began, and the rows of earlier runs at that time."""

    def snapshot(self) -> Snapshot:
        """Return the current state of the load."""
        rows = 0 if self._ledger is None else self._ledger.rows()
        waiting = None if self._ledger is None else self._ledger.waiting()
        result = self._snapshot(rows)
        seconds = time.monotonic() - self._began
        if result.phase is Phase.APPENDING and result.total and self.samples[-1].phase is Phase.ROUTING:
            self.samples.append(Sample(seconds, Phase.ROUTING, result.total))
        self.samples.append(Sample(seconds, result.phase, result.rows))
        if len(self.samples) > _MOST_SAMPLES:
            del self.samples[::2]
        return replace(result, waiting=waiting)

    def _snapshot(self, rows: int) -> Snapshot:
        stages, now = self._stages.stages(), time.monotonic()
        if (stages is None and self._ledger is None) or (stages is not None and not stages.tasks):
            return Snapshot(Phase.STARTING, rows=0)
        if stages is not None and (self._verifying or self._ledger is None or not stages.routed):
            phase = Phase.VERIFYING if self._verifying else Phase.APPENDING if stages.routed else Phase.ROUTING
            speed = stages.rows / (now - self._began) if phase is Phase.ROUTING and stages.rows else None
            return Snapshot(phase, stages.rows, None, stages.tasks, stages.tasks_done, rows_per_second=speed)
        if self._appending is None:
            self._appending = now, rows
        since, before = self._appending
        speed = (rows - before) / (now - since) if rows != before and now > since else None
        total = stages.rows if stages else None
        seconds_left = max(0, total - rows) / speed if total is not None and speed else None
        return Snapshot(Phase.APPENDING, rows, total, rows_per_second=speed, seconds_left=seconds_left)


@contextmanager
def live_progress(console: Console, read: Callable[[], Snapshot]) -> Iterator[None]:
    """Display the progress of a load while the context is active. A background thread calls ``read``."""
    done = Event()

    def poll(show: Callable[[Snapshot], None]) -> None:
        pause = _POLL_SECONDS
        while not done.wait(pause):
            began = time.monotonic()
            snapshot = read()
            if not done.is_set():
                show(snapshot)
            pause = max(_POLL_SECONDS, _POLLING_SHARE * (time.monotonic() - began))

    with (_bar if console.is_terminal else _lines)(console) as show:
        thread = Thread(target=poll, args=(show,), name="load progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            # An unresponsive store must not delay the end of the load.
            thread.join(timeout=2)


def describe(snapshot: Snapshot) -> str:
    """Return the progress as text: ``120,000 of 336,776 rows, 41,000 rows/s, 5 s left``."""
    if snapshot.phase is Phase.STARTING:
        return snapshot.waiting or "Spark plans the load"
    parts = [f"{snapshot.rows:,} rows" if snapshot.total is None else f"{snapshot.rows:,} of {snapshot.total:,} rows"]
    if snapshot.tasks:
        parts = [f"{parts[0]} read", f"{snapshot.tasks_done} of {snapshot.tasks} tasks done"]
    if snapshot.rows_per_second is not None:
        parts.append(f"{snapshot.rows_per_second:,.0f} rows/s")
    if snapshot.waiting is not None:
        parts.append(snapshot.waiting)
    elif snapshot.seconds_left is not None:
        parts.append(f"{duration(snapshot.seconds_left)} left")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Return a duration as text: ``5 s``, ``3 min 20 s``, ``2 h 5 min``."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


@contextmanager
def _bar(console: Console) -> Iterator[Callable[[Snapshot], None]]:
    """Show a bar, and yield the function that updates it."""
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description:<9}"),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[words]}", markup=False),
        console=console,
        transient=True,
    )
    progress.add_task(Phase.STARTING.value, total=None, words="Spark plans the load")

    def show(snapshot: Snapshot) -> None:
        task = progress.tasks[0]
        if snapshot.phase.value != task.description:
            # Create a new task, because a bar cannot return to an unknown total.
            progress.remove_task(task.id)
            progress.add_task(snapshot.phase.value, total=None, words="")
            task = progress.tasks[0]
        total = None if snapshot.share is None else 1.0
        progress.update(task.id, total=total, completed=snapshot.share or 0.0, words=describe(snapshot))

    with progress:
        yield show


@contextmanager
def _lines(console: Console) -> Iterator[Callable[[Snapshot], None]]:
    """Yield a function that prints a line if the phase changes, and after longer and longer pauses."""
    began, printed_at, phase = time.monotonic(), 0.0, None

    def show(snapshot: Snapshot) -> None:
        nonlocal printed_at, phase
        now = time.monotonic()
        pause = min(_LAST_LINE_SECONDS, max(_FIRST_LINE_SECONDS, (now - began) / _LINES_SHARE))
        if snapshot.phase is not phase or now - printed_at >= pause:
            printed_at, phase = now, snapshot.phase
            print_line(console, f"{snapshot.phase.value}: {describe(snapshot)}")

    yield show
