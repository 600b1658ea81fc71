"""Report of a bulk load as one HTML page with charts. It has no script, and loads nothing."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from string import Template

from spark_cas.core.plan import PartitionResult
from spark_cas.programs.errors import ExitCode
from spark_cas.programs.load_progress import Phase, duration
from spark_cas.programs.load_report import LoadReport

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
    """Return the report as an HTML page."""
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
