"""The results as a table on the screen and as a JSON file."""

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Result


def print_table(results: Sequence[Result], title: str) -> None:
    """Print one line per comparison."""
    table = Table(title=title)
    table.add_column("benchmark")
    for column in ("ours", "peer", "unit", "peer / ours"):
        table.add_column(column, justify="right")
    table.add_column("goal")
    for each in results:
        table.add_row(each.name, f"{each.ours:.2f}", f"{each.peer:.2f}", each.unit, f"{each.ratio:.2f}", each.goal)
    Console().print(table)


def write_json(results: Sequence[Result], file: Path) -> None:
    """Write a list of objects with name, ours, peer, ratio (peer / ours) and unit."""
    entries = [
        {
            "name": each.name,
            "ours": round(each.ours, 3),
            "peer": round(each.peer, 3),
            "ratio": round(each.ratio, 3),
            "unit": each.unit,
        }
        for each in results
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")
