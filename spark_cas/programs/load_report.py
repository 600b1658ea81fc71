"""Result of a bulk load: a table for people, one line of JSON for programs, and an HTML page with charts."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from html import escape
from importlib.resources import files
from itertools import repeat
from string import Template

from rich.box import SIMPLE_HEAD
from rich.table import Table

from spark_cas.core.errors import (
    ConditionalLogError,
    LogNotFoundError,
    TruncatedError,
    UnknownOutcomeError,
)
from spark_cas.core.outcome import Appends
from spark_cas.core.plan import PartitionResult, Progress
from spark_cas.log.backend import Backend
from spark_cas.log.expanding import layout_since
from spark_cas.log.jobs import removed_rows
from spark_cas.log.load.after_expansion import plan_now
from spark_cas.log.load.planning import job_results, require_same_kind, require_same_log
from spark_cas.log.open import AnySpec, open_log
from spark_cas.options.request import WriteRequest
from spark_cas.programs.errors import ExitCode, exit_code_of, kind_of
from spark_cas.programs.load_progress import READ_TIMEOUT_MS, Phase, Sample, duration

_FIELDS: Mapping[type, Sequence[str]] = {
    Progress: ("partition", "rows", "base_offset", "end_offset", "chunks", "complete"),
    PartitionResult: ("resumed_rows", "resolved", "guarantee", "null_keys"),
    Appends: ("timestamp_ms", "has_offset", "has_timestamp", "start_offset", "attempts", "aborted_rows"),
}
"""Fields of a partition in the report, which have the meaning and the names of these classes."""


@dataclass(frozen=True, slots=True)
class JobRows:
    """Rows of a job in the log."""

    partitions: tuple[PartitionResult, ...] = ()
    """Results of the partitions with rows under the current plan."""
    earlier_rows: int = 0
    """Rows that the job appended before the log was expanded. ``partitions`` does not include them."""
    complete: bool = False
    """Whether the job is complete."""
    removed: tuple[int, ...] | None = None
    """For each partition, an upper bound of the rows that retention or a trim has removed; None if not known."""

    @property
    def rows(self) -> int:
        """Rows of the job in the log."""
        return self.earlier_rows + sum(each.progress.rows for each in self.partitions)

    def rows_since(self, before: "JobRows") -> dict[int, int] | None:
        """Return the rows that were added to each partition since ``before``; None after an expansion."""
        if self.earlier_rows != before.earlier_rows:
            return None
        rows = {each.progress.partition: each.progress.rows for each in before.partitions}
        now = [each.progress for each in self.partitions]
        return {each.partition: max(0, each.rows - rows.get(each.partition, 0)) for each in now}


@dataclass(frozen=True, slots=True)
class LoadReport:
    """Report of a load."""

    job: str | None
    """None if the load has no job name and so cannot be recognized in a rerun."""
    log: str
    """Address of the log, without settings; empty if the arguments are invalid."""
    exit_code: ExitCode
    seconds: float
    in_log: JobRows | None
    """Rows of the job in the log; None if the log did not report them. Tasks of a failed run may append more."""
    appended_rows: int | None = None
    """Rows that this run appended; None if that is not known."""
    appended: Mapping[int, int] | None = None
    """By partition, the rows that a failed run appended; None if not known, and in the report of a complete job."""
    already_complete: bool = False
    completed_meanwhile: bool = False
    """The job was incomplete when this failed run began and is complete now, by this run or another."""
    verified: bool = False
    input: Mapping[str, object] | None = None
    """`spark_cas.programs.input.recorded_list.ListedInput.totals`; None if the input was not listed."""
    error: str | None = None
    """Stable token or class name of the error."""
    message: str | None = None
    next_offsets: Mapping[int, int | None] | None = None
    """Expected offsets for the next run of the job, if another writer's records rejected this one."""
    resumable: bool | None = None
    """After added partitions, whether the same command appends the remaining rows; None for another outcome."""
    bad_rows: int | None = None
    """Rows that cannot be appended; None if not known."""
    samples: tuple[Sample, ...] = ()
    """Rows over time, for the page of the report. The JSON does not contain them."""

    @property
    def rows(self) -> int | None:
        """Rows of the job in the log; None if the log did not report them."""
        return None if self.in_log is None else self.in_log.rows

    @property
    def removed_rows(self) -> int:
        """Upper bound of the rows of the job that were removed from the log."""
        return sum(self.in_log.removed or ()) if self.in_log else 0

    @property
    def null_keys(self) -> int | None:
        """Rows of the job without a key; None if not known, for example for an incomplete job."""
        if self.exit_code is not ExitCode.COMPLETE or self.in_log is None or self.in_log.earlier_rows:
            return None
        counts = [each.null_keys for each in self.in_log.partitions]
        known = [each for each in counts if each is not None]
        return sum(known) if len(known) == len(counts) else None

    def _run_text(self, each: PartitionResult) -> str:
        if self.already_complete:
            return "an earlier run"
        if not each.progress.complete:
            return "not complete"
        text = f"resumed at row {each.resumed_rows:,}" if each.resumed_rows else "fresh"
        return f"{text}, lost replies resolved: {each.resolved:,}" if each.resolved else text

    def to_json(self) -> str:
        """Return the report as one line of JSON."""
        result = {each.name: getattr(self, each.name) for each in fields(self)} | {
            "partitions": None if self.in_log is None else self._partitions(self.in_log),
            "earlier_rows": self.in_log.earlier_rows if self.in_log else 0,
            "status": self.exit_code.name.lower(),
            "exit_code": int(self.exit_code),
            "rows": self.rows,
            "null_keys": self.null_keys,
            "seconds": round(self.seconds, 3),
        }
        del result["in_log"], result["appended"], result["samples"]
        return json.dumps(result)

    def _partitions(self, rows: JobRows) -> list[dict[str, object]]:
        result = []
        for each, removed in zip(rows.partitions, rows.removed or repeat(None), strict=False):
            appended = None if self.appended is None else self.appended.get(each.progress.partition, 0)
            parts = (each.progress, each, each.appends)
            values = {name: getattr(part, name) for part in parts for name in _FIELDS[type(part)]}
            result.append({**values, "removed_rows": removed, "appended_rows": appended})
        return result

    def summary(self) -> str:
        """Return the result in one sentence."""
        load = f"job {self.job!r}" if self.job else "the load"
        if self.exit_code is not ExitCode.COMPLETE:
            return f"{load} {self._failure()}"
        if self.already_complete:
            comparison = "its input was not compared with them (--verify compares them)"
            if self.input is not None:
                comparison = "its files are the same, and were not read (--verify reads them)"
            if self.verified:
                comparison = "its input was read and is the same"
            return f"{load} was complete before, with {self.rows:,} rows: {comparison}, nothing was appended"
        if self.in_log is None:
            return f"{load} is complete: only Spark's driver has the number of appended rows"
        if self.appended_rows is None:
            return f"{load} is complete, with {self.rows:,} rows: the number that this run appended is not known"
        appended = self.appended_rows
        speed = f", {appended / self.seconds:,.0f} rows/s" if self.seconds else ""
        before = (self.rows or 0) - appended
        resumed = f", {before:,} by earlier runs" if before else ""
        more = f", {self.null_keys:,} rows have no key" if self.null_keys else ""
        more += f", bad rows that were not appended: {self.bad_rows:,}" if self.bad_rows else ""
        result = f"{load} is complete: {appended:,} rows appended in {self.seconds:.1f} s{speed}{resumed}{more}"
        if not self.removed_rows:
            return result
        return (
            f"{result}. Up to {self.removed_rows:,} rows were removed from the log during the load: retention "
            f"removes rows with old timestamps (retention.ms), or the log was trimmed"
        )

    def _failure(self) -> str:
        """Return the status of the job after a run that failed."""
        if self.already_complete:
            differs = self.exit_code is ExitCode.INPUT_CHANGED
            comparison = (
                "the input differs from that of the complete job" if differs else "the input was not compared"
            )
            return f"was complete before, with {self.rows:,} rows: {comparison}, nothing was appended"
        if self.completed_meanwhile:
            return (
                f"is complete, with {self.rows:,} rows; it was not complete when this run began, which {self.error} "
                f"ended"
            )
        if self.rows is None:
            rows = "the number of its rows in the log is not known"
        elif self.rows == 0:
            # The ledger may lack rows: entries expire in a topic, and trimming removes them.
            rows = "none of its rows is known to be in the log"
        else:
            # Tasks of a stopped load may still append rows.
            rows = f"at least {self.rows:,} of its rows are in the log"
        appended = "" if self.appended_rows is None else f"; this run appended {self.appended_rows:,}"
        return f"is not complete: {rows}{appended}"

    def table(self) -> Table:
        """Return a table of the partitions. It fits into 80 columns without cut numbers or words."""
        table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        for column in ("partition", "rows", "first\noffset", "end\noffset", "chunks"):
            table.add_column(column, justify="right", no_wrap=True)
        table.add_column("run")
        table.add_column("guarantee", no_wrap=True)
        for each in self.in_log.partitions if self.in_log else ():
            entry = each.progress
            numbers = (entry.partition, entry.rows, entry.base_offset, entry.end_offset, entry.chunks)
            table.add_row(*(f"{number:,}" for number in numbers), self._run_text(each), each.guarantee)
        return table


def failed_report(
    error: BaseException,
    job: str | None,
    log: str,
    seconds: float,
    rows: JobRows | None,
    *,
    incomplete_before: bool = False,
    before: JobRows | None = None,
    started: bool = True,
) -> LoadReport:
    """Return the report of a load that failed.

    Args:
        error: the error that ended the run
        job, log, seconds: as in `LoadReport`
        rows: the rows of the job in the log; None if not known
        incomplete_before: whether the job was incomplete when the run began
        before: the rows of the job that were in the log when the run began; None if not known
        started: whether the run started Spark; before that, it appends nothing
    """
    complete = rows is not None and rows.complete
    own = error if isinstance(error, ConditionalLogError) else None
    appended: Mapping[int, int] | None = None if started else {}
    if started and own is not None:
        appended = own.appended_rows
    if appended is None and rows is not None and before is not None and not (complete and incomplete_before):
        appended = rows.rows_since(before)
    return LoadReport(
        job=job,
        log=log,
        exit_code=exit_code_of(error),
        seconds=seconds,
        in_log=rows,
        appended_rows=None if appended is None else sum(appended.values()),
        appended=appended,
        already_complete=complete and not incomplete_before,
        completed_meanwhile=complete and incomplete_before,
        error=kind_of(error),
        message=own.message if own else str(error) or None,
        next_offsets=own.next_offsets if own else None,
        resumable=own.resumable if own else None,
    )


def rows_now(spec: AnySpec, job: str) -> JobRows | None:
    """Return the rows of a job in the log, complete or not; None if the log does not report them within 5 s."""
    try:
        # A stopped writer may leave a transaction open, and the report does not wait for it.
        with open_log(spec.with_patience(5 * READ_TIMEOUT_MS)) as log:
            rows = complete_rows(log, job)
            if rows is not None:
                return rows
            plan = plan_now(log, job)
            results = job_results(log, job if plan is None else plan.job)
    except (LogNotFoundError, TruncatedError):
        return JobRows()
    except ConditionalLogError:
        return None
    return JobRows(results, plan.earlier_rows if plan else 0)


def complete_rows(log: Backend, job: str) -> JobRows | None:
    """Return the rows of a complete job in the log; None if the job is not complete.

    Raises:
        TruncatedError: if the job was planned on a log of this name that no longer exists
        ConditionalLogError: if the log fails
    """
    try:
        plan = plan_now(log, job)
        completion = log.completion(job if plan is None else plan.job)
        if completion is None:
            return None
        layout = layout_since(log, completion.layout_epoch)
    except LogNotFoundError:
        raise TruncatedError(
            f"job {job!r} was planned on a log of this name that no longer exists. Nothing was appended. Use "
            f"another job name if the rows are to go into a new log."
        ) from None
    require_same_log(job, completion.log_id, layout)
    removed = removed_rows(log, [each.progress for each in completion.partitions])
    return JobRows(completion.partitions, plan.earlier_rows if plan else 0, complete=True, removed=removed)


def recorded_rows(spec: AnySpec, job: str) -> JobRows:
    """Return the result that the registry recorded for a write. Raises UnknownOutcomeError if there is none."""
    with open_log(spec) as log:
        rows = complete_rows(log, job)
    if rows is None:
        raise UnknownOutcomeError(
            f"the write of job {job!r} returned, but the registry has no record that the job is complete. Run the "
            f"same command again."
        )
    return rows


def rows_of_same_kind(log: Backend, write: WriteRequest, job: str) -> JobRows | None:
    """Return the rows of a job that an earlier run completed; None if it is not complete.

    Raises:
        JobMismatchError: if the job was planned as another kind of write
        TruncatedError: if the job was planned on another log
    """
    rows = complete_rows(log, job)
    plan = None if rows is None else log.plan(job)
    if plan is not None:
        require_same_kind(
            log,
            plan,
            stream=write.batch_id is not None,
            compare=write.compare,
            round_of=write.round_of,
            whole=write.whole,
            partitioner=write.partitioner,
        )
    return rows


_BINS, _BIN_SECONDS = 60, 0.5
"""Maximum number of bars over time, and the minimum duration of each."""
_HEIGHT, _TOP = 160, 16
"""Height of the chart over time, and the space above it for a label, in pixels."""


@dataclass(frozen=True, slots=True)
class _Interval:
    start: float
    end: float
    phase: Phase
    rows: int
    """Rows that were read in the phases routing and verifying, or appended."""


def page_of(report: LoadReport) -> str:
    """Return the report as an HTML page, which has no script and loads nothing."""
    intervals, summary = [*_intervals(report)], report.summary()
    return Template((files(__package__) / "report_page.html").read_text(encoding="utf-8")).substitute(
        title=escape(f"Load of job {report.job}" if report.job else "Load without a job name"),
        log=escape(report.log),
        mood="good" if report.exit_code is ExitCode.COMPLETE else "bad",
        state=escape(f"{summary[:1].upper()}{summary[1:]}."),
        error=f'<p class="bad">{escape(": ".join(filter(None, (report.error, report.message))))}</p>',
        speed=_speed(report, intervals),
        phases=_phases(report, intervals),
        retries="".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in _retries(report).items()),
        partitions=_partitions(report),
    )


def _intervals(report: LoadReport) -> Iterator[_Interval]:
    """Yield the intervals between the samples, each with the phase at its end.

    Spark counts the rows of a task at its end, so rows that were read belong to the time since the previous count.
    """
    start, at, phase, rows = 0.0, 0.0, Phase.STARTING, 0
    before = max(0, (report.rows or 0) - (report.appended_rows or 0))
    for sample in report.samples:
        if sample.phase is not phase:
            yield _Interval(start, at, phase, 0)
            start, phase, rows = at, sample.phase, before if sample.phase is Phase.APPENDING else 0
        at = sample.seconds
        if sample.rows > rows or phase is Phase.APPENDING:
            yield _Interval(start, at, phase, max(0, sample.rows - rows))
            start, rows = at, max(rows, sample.rows)
    if report.appended_rows and phase is not Phase.APPENDING:
        yield _Interval(start, at, phase, 0)
        start, phase, rows = at, Phase.APPENDING, before
    remaining = max(0, (report.rows or 0) - rows) if phase is Phase.APPENDING else 0
    yield _Interval(start, max(at, report.seconds), phase, remaining)


def _speed(report: LoadReport, intervals: list[_Interval]) -> str:
    count = max(1, min(_BINS, int(report.seconds / _BIN_SECONDS)))
    width = report.seconds / count
    bins: list[dict[Phase, float]] = [defaultdict(float) for _ in range(count)]
    for each in intervals:
        first, last = (min(count - 1, int(at / width)) if width else 0 for at in (each.start, each.end))
        for number in range(first, last + 1):
            inside = min(each.end, (number + 1) * width) - max(each.start, number * width)
            share = inside / (each.end - each.start) if each.end > each.start else 1.0
            bins[number][each.phase] += each.rows * max(0.0, share)
    most = max(sum(each.values()) for each in bins)
    if not most or not width:
        return '<p class="weak">This run appended no rows.</p>'
    bars = []
    for number, by_phase in enumerate(bins):
        bottom = float(_HEIGHT)
        for phase in (Phase.ROUTING, Phase.VERIFYING, Phase.APPENDING):
            height = _HEIGHT * by_phase[phase] / most
            bottom -= height
            if height:
                name = f"{number * width:.1f} s: {by_phase[phase] / width:,.0f} rows/s {phase.value}"
                bars.append(_bar(number / count, 0.9 / count, bottom, height, phase.value, name=name))
    lines = "".join(
        f'<line x1="0" x2="100%" y1="{y}" y2="{y}"/><text x="0" y="{y - 4}">{most / width * share:,.0f}</text>'
        for y, share in ((0, 1.0), (_HEIGHT / 2, 0.5))
    )
    axis = (
        f'<line x1="0" x2="100%" y1="{_HEIGHT}" y2="{_HEIGHT}"/><text x="0" y="{_HEIGHT + 16}">0 s</text>'
        f'<text x="100%" y="{_HEIGHT + 16}" text-anchor="end">{duration(report.seconds)}</text>'
    )
    moved = f'<g transform="translate(0 {_TOP})">{lines}{"".join(bars)}{axis}</g>'
    return f'<svg role="img" aria-label="Rows per second over time" height="{_HEIGHT + _TOP + 20}">{moved}</svg>'


def _phases(report: LoadReport, intervals: list[_Interval]) -> str:
    seconds: dict[Phase, float] = defaultdict(float)
    for each in intervals:
        seconds[each.phase] += each.end - each.start
    bars, legend, at = [], [], 0.0
    for phase, total in seconds.items():
        share = total / report.seconds if report.seconds else 1.0
        bars.append(_bar(at, share, 0, 16, phase.value, name=f"{phase.value}: {total:.1f} s"))
        legend.append(f'<span><i class="{phase.value}"></i>{phase.value} {total:.1f} s</span>')
        at += share
    chart = f'<svg role="img" aria-label="Phases" height="16">{"".join(bars)}</svg>'
    return f'{chart}<p class="legend">{"".join(legend)}</p>'


def _retries(report: LoadReport) -> Mapping[str, str]:
    results = report.in_log.partitions if report.in_log else ()
    chunks = sum(each.progress.chunks for each in results)
    result = {
        "appended chunks": f"{chunks:,}",
        "attempts of the newest tasks": f"{sum(each.appends.attempts or 0 for each in results):,}",
        "aborted rows": f"{sum(each.appends.aborted_rows or 0 for each in results):,}",
        "lost responses resolved": f"{sum(each.resolved or 0 for each in results):,}",
        "resumed rows": f"{sum(each.resumed_rows or 0 for each in results):,}",
    }
    if report.next_offsets:
        offsets = ", ".join(f"{partition}: {offset}" for partition, offset in report.next_offsets.items())
        result["expected offsets for the next run"] = offsets
    return result


def _partitions(report: LoadReport) -> str:
    results = report.in_log.partitions if report.in_log else ()
    if not results:
        return '<p class="weak">No rows of the job are known to be in the log.</p>'
    most_rows = max(each.progress.rows for each in results) or 1
    first = min(each.progress.base_offset for each in results)
    span = max(each.progress.end_offset for each in results) - first or 1

    def row(each: PartitionResult) -> str:
        progress, appends = each.progress, each.appends
        start, share = (progress.base_offset - first) / span, (progress.end_offset - progress.base_offset) / span
        return (
            f"<tr><td>{progress.partition}</td>"
            f'<td class="wide">{progress.rows:,}{_small(0, progress.rows / most_rows, "appending")}</td>'
            f'<td class="wide">{progress.base_offset:,} to {progress.end_offset:,}'
            f"{_small(start, share, 'routing')}</td>"
            f"<td>{progress.chunks:,}</td><td>{_number(appends.attempts)}</td>"
            f"<td>{_number(appends.aborted_rows)}</td></tr>"
        )

    names = ("partition", "rows", "offsets", "chunks", "attempts", "aborted rows")
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join(map(row, results))
    return f'<div class="scroll" tabindex="0"><table><tr>{head}</tr>{body}</table></div>'


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _small(x: float, width: float, kind: str) -> str:
    bars = _bar(0, 1, 0, 6, "track") + _bar(x, width, 0, 6, kind)
    return f'<svg aria-hidden="true">{bars}</svg>'


def _bar(x: float, width: float, y: float, height: float, kind: str, *, name: str = "") -> str:
    """Return a bar. ``x`` and ``width`` are shares of the chart, ``y`` and ``height`` are pixels."""
    title = f"<title>{escape(name)}</title>" if name else ""
    place = f'x="{100 * x:.2f}%" width="{100 * width:.2f}%" y="{y:.1f}" height="{height:.1f}"'
    return f'<rect class="{kind}" {place}>{title}</rect>'
