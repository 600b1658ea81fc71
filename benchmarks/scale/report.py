"""The results as tables on the screen, as a file to which runs add, and as pictures."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.scale.pictures import Figures, draw
from benchmarks.scale.series import Series, Turn, each, further

Found = dict[str, list[Series]]
"""The series by part of the benchmark."""

_US = 1_000_000
_WIDTH = 118
_MS = 1000


def print_tables(found: Found) -> None:
    """Print seconds and CPU time for each part, with the CPU time per unit and per additional unit."""
    for part, series in found.items():
        table = Table(title=part)
        for column in ("", series[0].of, "s", "processor s", "us each", "us for each further"):
            table.add_column(column, justify="right" if column else "left", no_wrap=True)
        for one in series:
            seconds, processor = one.seconds(), one.processor()
            per, more = each(processor), further(processor)
            for size in seconds:
                beyond = f"{_US * more[size]:.3f}" if size in more else ""
                figures = (f"{seconds[size]:.4f}", f"{processor[size]:.4f}", f"{_US * per[size]:.3f}", beyond)
                table.add_row(one.name, f"{size:,}", *figures)
        Console(width=_WIDTH).print(table)


def read_json(file: Path) -> Found:
    """Return the results of earlier runs, if any."""
    if not file.exists():
        return {}
    parts = json.loads(file.read_text(encoding="utf-8"))
    return {part: [_series(entry) for entry in series] for part, series in parts.items()}


def write_json(found: Found, file: Path) -> None:
    """Write, by part, a list of objects with name, of, and turns: seconds and CPU time of each turn, by size."""
    entries = {part: [asdict(one) for one in series] for part, series in found.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")


def draw_all(found: Found, folder: Path) -> None:
    """Draw a picture for each measured kind of growth."""
    pictures: list[tuple[tuple[str, ...], str, str, Figures]] = [
        (("rows", "kafka-rows"), "Processor time of a row", "microseconds", _microseconds_each),
        (("partitions", "kafka-partitions"), "Processor time of the same rows", "seconds", Series.processor),
        (("chunks",), "Processor time in one partition of a directory", "milliseconds", _milliseconds),
    ]
    for parts, title, unit, figures in pictures:
        series = [one for part in parts for one in found.get(part, [])]
        if series:
            draw(series, title, unit, figures, folder / f"{parts[0]}.svg")


def _microseconds_each(series: Series) -> dict[int, float]:
    return {size: _US * figure for size, figure in each(series.processor()).items()}


def _milliseconds(series: Series) -> dict[int, float]:
    return {size: _MS * figure for size, figure in series.processor().items()}


def _series(entry: dict[str, Any]) -> Series:
    turns = {int(size): tuple(Turn(**took) for took in taken) for size, taken in entry["turns"].items()}
    return Series(entry["name"], entry["of"], turns)
