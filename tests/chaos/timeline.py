"""The timeline of a run: an HTML file with a row for each process, operations as bars and faults as bands.

The file is self-contained.
"""

from collections.abc import Sequence
from html import escape

from tests.chaos.nemesis import FAULT
from tests.chaos.run import Outcome
from tests.history.operations import FAIL, OK, Operation

MOST = 20_000
"""Browsers are slow with more bars than this. Later operations are left out, and the page reports their number."""
_PIXELS_PER_SECOND = 40
_ROW, _LEFT, _TOP, _BAR = 26, 140, 40, 14
_COLOURS = {OK: "#2e8b57", FAIL: "#d08a1d"}
_UNKNOWN, _BAND = "#b03060", "#7a8fb8"

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 14px sans-serif; margin: 1em }} .scroll {{ overflow-x: auto; border: 1px solid #ccc }}
text {{ font: 12px sans-serif }} rect:hover {{ stroke: #000 }} li {{ white-space: pre-wrap }}
b {{ padding: 0 .5em; color: #fff }}
</style>
<h1>{title}</h1>
<p>{verdict}</p>
<p><b style="background:{ok}">ok</b> <b style="background:{fail}">definitely rejected</b>
<b style="background:{unknown}">unknown outcome, or no result</b> <b style="background:{band}">a fault</b>
Move the mouse over a bar to show the operation and its result.{left_out}</p>
<ul>{violations}</ul>
<div class="scroll"><svg width="{width}" height="{height}" role="img" aria-label="timeline">{body}</svg></div>
</html>
"""


def page(outcome: Outcome) -> str:
    """Return the page of a run."""
    bars = sorted(outcome.history, key=lambda each: (each.name == FAULT, each.start_ns))
    faults = [each for each in bars if each.name == FAULT]
    operations = [each for each in bars if each.name != FAULT][:MOST]
    begin = min((each.start_ns for each in outcome.history), default=0)
    end = max((_end(each) for each in [*operations, *faults]), default=0)
    rows = sorted({each.process for each in operations}) + sorted({str(each.arguments["kind"]) for each in faults})
    width = _LEFT + round((end - begin) / 1e9 * _PIXELS_PER_SECOND) + 60
    height = _TOP + _ROW * len(rows)
    body = [_seconds(round((end - begin) / 1e9), height)]
    body += [f'<text x="4" y="{_TOP + _ROW * at + 12}">{escape(row)}</text>' for at, row in enumerate(rows)]
    for each in [*faults, *operations]:
        body.append(_bar(each, rows, begin, end, height))
    hidden = len(outcome.history) - len(faults) - len(operations)
    return _PAGE.format(
        title=f"chaos on {outcome.backend}, seed {outcome.seed}",
        verdict=escape("violations" if outcome.violations else "no violation"),
        ok=_COLOURS[OK],
        fail=_COLOURS[FAIL],
        unknown=_UNKNOWN,
        band=_BAND,
        left_out=f" {hidden} later operations are left out." if hidden else "",
        violations="".join(f"<li>{escape(str(each))}</li>" for each in outcome.violations[:100]),
        width=width,
        height=height,
        body="\n".join(body),
    )


def _end(operation: Operation) -> int:
    return operation.start_ns if operation.end_ns is None else operation.end_ns


def _seconds(seconds: int, height: int) -> str:
    marks = [
        f'<path d="M{_LEFT + at * _PIXELS_PER_SECOND} 24V{height}" stroke="#ddd"/>'
        f'<text x="{_LEFT + at * _PIXELS_PER_SECOND}" y="16">{at} s</text>'
        for at in range(0, seconds + 1, 5)
    ]
    return "".join(marks)


def _bar(each: Operation, rows: Sequence[str], begin: int, end: int, height: int) -> str:
    left = _LEFT + (each.start_ns - begin) / 1e9 * _PIXELS_PER_SECOND
    is_fault = each.name == FAULT
    # A fault without an end lasts until the end of the run. An operation without an end has the minimum width.
    until = end if each.end_ns is None and is_fault else _end(each)
    width = max(2.0, (until - each.start_ns) / 1e9 * _PIXELS_PER_SECOND)
    row = rows.index(str(each.arguments["kind"]) if is_fault else each.process)
    colour = _BAND if is_fault else _COLOURS.get(each.outcome, _UNKNOWN)
    description = escape(f"{each.name} {_request(each)} -> {each.outcome} {_result(each)}")
    y = _TOP + _ROW * row
    band = f'<path d="M{left:.1f} 24h{width:.1f}V{height}h-{width:.1f}z" fill="{_BAND}" opacity=".07"/>'
    return (
        f'{band if is_fault else ""}<rect x="{left:.1f}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{colour}">'
        f"<title>{description}</title></rect>"
    )


def _request(each: Operation) -> str:
    if "steps" in each.arguments:
        return str(each.arguments["steps"])
    if "records" not in each.arguments:
        return str(each.arguments.get("kind", ""))
    sizes = {at: len(rows) for at, rows in each.arguments["records"].items()}
    return f"{each.arguments['job']}, records {sizes}, expected {each.arguments['expected']}"


def _result(each: Operation) -> str:
    return str({name: value for name, value in each.result.items() if name != "told"})
