"""Tables for a terminal or a pipe."""

import sys

from rich.console import Console, JustifyMethod
from rich.table import Table

_TEXT = frozenset({"job", "complete", "newest chunk", "lock of job", "undecided job", "since"})
_LONG = frozenset({"job", "newest chunk", "lock of job", "undecided job"})


def table_of(*columns: str) -> Table:
    """Return an empty table. On a narrow terminal, long cells are wrapped."""
    table = Table(padding=0)
    for column in columns:
        header = column.replace(" ", "\n") if column.endswith("offset") else column
        justify: JustifyMethod = "left" if column in _TEXT else "right"
        table.add_column(header, justify=justify, no_wrap=column not in _LONG, overflow="fold")
    return table


def add_row(table: Table, *cells: int | str) -> None:
    """Add a row. Integers get thousands separators."""
    table.add_row(*(f"{cell:,}" if isinstance(cell, int) else cell for cell in cells))


def console() -> Console:
    """Return the console for tables. In a pipe its width is 240 columns."""
    return Console() if sys.stdout.isatty() else Console(width=240)
