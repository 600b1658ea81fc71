"""Pictures of the series: small SVGs, the same bytes for the same figures."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.scale.series import Series

_SIZE_INCHES = (6.4, 4.2)
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: small, and in the font of the page
    "svg.hashsalt": "benchmarks",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
}
_LOG = 10

Figures = Callable[[Series], dict[int, float]]
"""By size, what the picture shows of a series."""


def draw(series: Sequence[Series], title: str, unit: str, figures: Figures, file: Path) -> None:
    """One line for each series over sizes that grow tenfold, on a logarithmic axis from a round figure on."""
    with mpl.rc_context(_SETTINGS):
        figure = Figure(_SIZE_INCHES, facecolor="white", layout="constrained")
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
        # A flat line is to look flat: a whole power of ten is shown at least.
        axes.set_ylim(_power_below(lowest), max(_power_below(highest) * _LOG, _power_below(lowest) * _LOG))
        axes.set_xlabel(series[0].of)
        axes.set_ylabel(unit)
        axes.set_title(title, loc="left")
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, format="svg", metadata={"Date": None})


def _power_below(value: float) -> float:
    power = 1.0
    while power > value:
        power /= _LOG
    while power * _LOG <= value:
        power *= _LOG
    return power
