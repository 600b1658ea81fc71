"""`offsets`, `progress`, `jobs`, `describe`: show the state of a log and its jobs."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from rich.console import Console, JustifyMethod
from rich.table import Table

from spark_cas.cli.lines import json_line
from spark_cas.cli.opening import opened
from spark_cas.core.load_locks import LoadLock
from spark_cas.core.plan import Layout, Progress
from spark_cas.log.backend import Backend
from spark_cas.log.clock import time_text
from spark_cas.log.jobs import JobPartition, job_states
from spark_cas.log.load.after_expansion import plan_now
from spark_cas.log.load.atomic_load import undecided_progress
from spark_cas.log.load.planning import job_progress
from spark_cas.programs.errors import ExitCode

_LONG = frozenset({"job", "planned", "newest chunk", "completed", "offsets", "lock of job", "undecided job"})
_TEXT = _LONG | {"state", "complete", "since"}
_PROGRESS = ("partition", "rows", "base_offset", "end_offset", "chunks", "complete", "committed_at_ms")
_SHOWN_PARTITIONS = 4


_Rows = list[dict[str, Any]]
"""Rows of a table, with the names that ``--json`` uses."""


def offsets(arguments: argparse.Namespace) -> None:
    """Show the offsets of each partition."""
    with opened(arguments) as log:
        layout = log.layout()
        rows = _offsets(log, layout)
    if arguments.json:
        _print_lines(rows)
        return
    _console().print(_offsets_table(rows, f"{log.topic}, layout epoch {layout.epoch}"))


def progress(arguments: argparse.Namespace) -> None:
    """Show the progress of each job in each partition."""
    with opened(arguments) as log:
        rows: _Rows = [
            {"job": job, **{name: getattr(entry, name) for name in _PROGRESS}}
            for job in (log.jobs() if arguments.job is None else (arguments.job,))
            for entry in job_progress(log, job)
        ]
    if arguments.json:
        _print_lines(rows)
        return
    columns = ("job", "partition", "rows", "first offset", "end offset", "chunks", "complete", "newest chunk")
    cells = (
        (*numbers, "yes" if complete else "no", _time(newest_ms))
        for *numbers, complete, newest_ms in (row.values() for row in rows)
    )
    _console().print(table_of(columns, cells, log.topic))


def jobs(arguments: argparse.Namespace) -> ExitCode:
    """List the jobs of a log: state, rows, times and offsets."""
    code = ExitCode.COMPLETE
    columns = ("job", "state", "rows", "planned", "newest chunk", "completed", "offsets")
    rows: list[tuple[int | str, ...]] = []
    with opened(arguments) as log:
        for each in job_states(log):
            if each.error is not None:
                code = ExitCode.LOG_UNUSABLE
            if arguments.json:
                error = None if each.error is None else each.error.message
                print(json_line({**asdict(replace(each, error=None)), "error": error}))
                continue
            times = (each.planned_at_ms or None, each.newest_chunk_ms, each.completed_at_ms)
            state = f"{each.state}, load lock" if each.has_load_lock else each.state
            rows.append((each.job, state, each.rows, *map(_time, times), _offsets_text(each.partitions)))
    if not arguments.json:
        _console().print(table_of(columns, rows, log.topic))
    return code


def _offsets_text(partitions: tuple[JobPartition, ...]) -> str:
    shown = [f"{each.partition}: {each.base_offset} to {each.end_offset}" for each in partitions[:_SHOWN_PARTITIONS]]
    more = len(partitions) - len(shown)
    return ", ".join([*shown, *([f"{more} more"] if more else [])])


def describe(arguments: argparse.Namespace) -> None:
    """Show a log: its layout, the offsets of each partition, the progress of jobs, and active loads."""
    with opened(arguments) as log:
        layout = log.layout()
        partitions = _offsets(log, layout)
        jobs, undecided = _jobs(log)
        locks = log.load_locks().held
    if arguments.json:
        locked = [
            {"job": each.job, "partitions": sorted(each.partitions), "granted_at_ms": each.granted_at_ms}
            for each in locks
        ]
        result = {"log": log.topic, "log_id": layout.log_id, "layout_epoch": layout.epoch, "partitions": partitions}
        print(json_line({**result, "jobs": jobs, "load_locks": locked, "undecided": undecided}))
        return
    console = _console()
    head_line = f"{log.topic}: {layout.partitions:,} partitions, layout epoch {layout.epoch}, log id {layout.log_id}"
    console.print(head_line, markup=False, highlight=False, soft_wrap=True)
    console.print(_offsets_table(partitions))
    console.print(_jobs_table(jobs, layout) if jobs else "no jobs")
    if locks:
        console.print(_load_lock_table(locks))
    if undecided:
        console.print(_undecided_table(undecided))


def _print_lines(rows: _Rows) -> None:
    for row in rows:
        print(json_line(row))


def _offsets(log: Backend, layout: Layout) -> _Rows:
    bounds = log.bounds_of(range(layout.partitions), waiting=True)
    return [
        {"partition": partition, "start_offset": each.start_offset, "end_offset": each.end_offset}
        for partition, each in enumerate(bounds)
    ]


def _offsets_table(rows: _Rows, title: str | None = None) -> Table:
    columns = ("partition", "start offset", "end offset", "offsets kept")
    return table_of(columns, ((*row.values(), row["end_offset"] - row["start_offset"]) for row in rows), title)


def _jobs(log: Backend) -> tuple[_Rows, _Rows]:
    """Return the progress of the jobs, and that of the undecided rows of atomic loads."""
    rows, undecided = [], []
    for job in log.jobs():
        entries, plan = job_progress(log, job), plan_now(log, job)
        complete = log.completion(job if plan is None else plan.job) is not None
        parts = sum(entry.complete for entry in entries)
        rows.append({"job": job, **_totals(entries), "complete": complete, "complete_partitions": parts})
        invisible = undecided_progress(log, plan) if plan else ()
        if invisible:
            undecided.append({"job": job, **_totals(invisible)})
    return rows, undecided


def _totals(entries: Sequence[Progress]) -> dict[str, int | None]:
    return {
        "rows": sum(entry.rows for entry in entries),
        "chunks": sum(entry.chunks for entry in entries),
        "partitions": len(entries),
        "committed_at_ms": max((entry.committed_at_ms for entry in entries), default=None),
    }


def _jobs_table(rows: _Rows, layout: Layout) -> Table:
    cells = []
    for row in rows:
        complete = "yes" if row["complete"] else f"{row['complete_partitions']} of {layout.partitions}"
        numbers = (row["rows"], row["chunks"], row["partitions"])
        cells.append((row["job"], *numbers, complete, _time(row["committed_at_ms"])))
    return table_of(("job", "rows", "chunks", "partitions", "complete", "newest chunk"), cells)


def _undecided_table(rows: _Rows) -> Table:
    cells = ((row["job"], row["rows"], row["partitions"], _time(row["committed_at_ms"])) for row in rows)
    return table_of(("undecided job", "rows", "partitions", "newest chunk"), cells)


def _load_lock_table(locks: Iterable[LoadLock]) -> Table:
    cells = ((lock.job, lock.partitions_text, time_text(lock.granted_at_ms)) for lock in locks)
    return table_of(("lock of job", "partitions", "since"), cells)


def _time(milliseconds: int | None) -> str:
    return "" if milliseconds is None else time_text(milliseconds)


def table_of(columns: Iterable[str], rows: Iterable[Sequence[int | str]], title: str | None = None) -> Table:
    """Return a table. Integers get thousands separators. On a narrow terminal, long cells are wrapped."""
    table = Table(padding=0, title=title)
    for column in columns:
        header = column.replace(" ", "\n") if column.endswith("offset") else column
        justify: JustifyMethod = "left" if column in _TEXT else "right"
        table.add_column(header, justify=justify, no_wrap=column not in _LONG, overflow="fold")
    for cells in rows:
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else cell for cell in cells))
    return table


def _console() -> Console:
    """Return the console for tables. In a pipe its width is 240 columns."""
    return Console() if sys.stdout.isatty() else Console(width=240)
