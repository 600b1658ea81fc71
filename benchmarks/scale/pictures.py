"""Pictures of the series: small SVG files, with the same bytes for the same figures."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.scale.series import Series

_SIZE_INCHES = (6.4, 4.2)
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",  # keep text as text: small, and in the font of the page
    "svg.hashsalt": "benchmarks",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "axes.facecolor": "none",
}
_DARK_MODE = """
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  [style*="#000000"] { stroke: #9198a1 !important }
  [style*="#dddddd"] { stroke: #30363d !important }
}
"""
"""Colours of text, axes and grid on a dark page. The background is transparent, and the lines have one colour."""

_LOG = 10

Figures = Callable[[Series], dict[int, float]]
"""Returns the figures of a series that a picture shows, by size."""


def draw(series: Sequence[Series], title: str, unit: str, figures: Figures, file: Path) -> None:
    """Draw one line for each series. Both axes are logarithmic, and the vertical one begins at a power of ten."""
    with mpl.rc_context(_SETTINGS):
        figure = Figure(_SIZE_INCHES, facecolor="none", layout="constrained")
        axes = figure.subplots()
        for each in series:
            shown = figures(each)
            axes.plot(list(shown), list(shown.values()), marker="o", markersize=4, linewidth=1.5, label=each.name)
        axes.set_xscale("log", base=_LOG)
        axes.set_yscale("log", base=_LOG)
        sizes = sorted({size for each in series for size in figures(each)})
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        lowest, highest = (pick(value for each in series for value in figures(each).values()) for pick in (min, max))
        # Show at least a factor of ten, so that a flat line appears flat.
        axes.set_ylim(_power_below(lowest), max(_power_below(highest) * _LOG, _power_below(lowest) * _LOG))
        axes.set_xlabel(series[0].of)
        axes.set_ylabel(unit)
        axes.set_title(title, loc="left")
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
        file.parent.mkdir(parents=True, exist_ok=True)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    file.write_text(drawn.getvalue().replace("</style>", f"{_DARK_MODE}</style>", 1))


def _power_below(value: float) -> float:
    power = 1.0
    while power > value:
        power /= _LOG
    while power * _LOG <= value:
        power *= _LOG
    return power
