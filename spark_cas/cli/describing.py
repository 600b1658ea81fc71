"""`offsets`, `progress`, `jobs`, `describe`: show the state of a log and its jobs."""

import argparse
import json
import sys
from dataclasses import asdict

from rich.console import Console, JustifyMethod
from rich.table import Table

from spark_cas.cli.opening import opened
from spark_cas.core.load_locks import LoadLocks
from spark_cas.core.plan import Layout
from spark_cas.log.backend import Backend
from spark_cas.log.clock import time_text
from spark_cas.log.doctor.job_states import JobPartition, job_states
from spark_cas.log.load.after_expansion import plan_now
from spark_cas.log.load.atomic_load import undecided_progress
from spark_cas.log.load.planning import job_progress

_TEXT = frozenset(
    {"job", "state", "complete", "planned", "newest chunk", "completed", "offsets", "lock of job", "undecided job"}
    | {"since"}
)
_LONG = frozenset({"job", "planned", "newest chunk", "completed", "offsets", "lock of job", "undecided job"})
_SHOWN_PARTITIONS = 4


def offsets(arguments: argparse.Namespace) -> None:
    """Show the offsets of each partition."""
    with opened(arguments) as log:
        layout = log.layout()
        table = _offsets_table(log, layout)
        table.title = f"{log.topic}, layout epoch {layout.epoch}"
    _console().print(table)


def progress(arguments: argparse.Namespace) -> None:
    """Show the progress of each job in each partition."""
    table = table_of("job", "partition", "rows", "first offset", "end offset", "chunks", "complete", "newest chunk")
    with opened(arguments) as log:
        for job in log.jobs() if arguments.job is None else (arguments.job,):
            for entry in job_progress(log, job):
                numbers = (entry.partition, entry.rows, entry.base_offset, entry.end_offset, entry.chunks)
                complete, newest = "yes" if entry.complete else "no", time_text(entry.committed_at_ms)
                add_row(table, job, *numbers, complete, newest)
        table.title = log.topic
    _console().print(table)


def jobs(arguments: argparse.Namespace) -> None:
    """List the jobs of a log: state, rows, times and offsets."""
    table = table_of("job", "state", "rows", "planned", "newest chunk", "completed", "offsets")
    with opened(arguments) as log:
        for each in job_states(log):
            if arguments.json:
                print(json.dumps(asdict(each)))
                continue
            times = (each.planned_at_ms or None, each.newest_chunk_ms, each.completed_at_ms)
            shown = ("" if time is None else time_text(time) for time in times)
            state = f"{each.state}, load lock" if each.has_load_lock else each.state
            add_row(table, each.job, state, each.rows, *shown, _offsets_text(each.partitions))
        table.title = log.topic
    if not arguments.json:
        _console().print(table)


def _offsets_text(partitions: tuple[JobPartition, ...]) -> str:
    shown = [f"{each.partition}: {each.base_offset} to {each.end_offset}" for each in partitions[:_SHOWN_PARTITIONS]]
    more = len(partitions) - len(shown)
    return ", ".join([*shown, *([f"{more} more"] if more else [])])


def describe(arguments: argparse.Namespace) -> None:
    """Show a log: its layout, the offsets of each partition, the progress of jobs, and active loads."""
    with opened(arguments) as log:
        layout = log.layout()
        partitions = _offsets_table(log, layout)
        jobs = _jobs_table(log, layout)
        load_locks = log.load_locks()
        undecided = _undecided_table(log)
    console = _console()
    head = f"{log.topic}: {layout.partitions:,} partitions, layout epoch {layout.epoch}, log id {layout.log_id}"
    console.print(head, markup=False, highlight=False, soft_wrap=True)
    console.print(partitions)
    if jobs.row_count:
        console.print(jobs)
    else:
        console.print("no jobs")
    if load_locks.held:
        console.print(_load_lock_table(load_locks))
    if undecided.row_count:
        console.print(undecided)


def _offsets_table(log: Backend, layout: Layout) -> Table:
    table = table_of("partition", "start offset", "end offset", "offsets kept")
    for partition, bounds in enumerate(log.bounds_of(range(layout.partitions), waiting=True)):
        add_row(table, partition, bounds.start_offset, bounds.end_offset, len(bounds.range))
    return table


def _jobs_table(log: Backend, layout: Layout) -> Table:
    table = table_of("job", "rows", "chunks", "partitions", "complete", "newest chunk")
    for job in log.jobs():
        entries = job_progress(log, job)
        plan = plan_now(log, job)
        is_complete = log.completion(job if plan is None else plan.job) is not None
        complete = "yes" if is_complete else f"{sum(entry.complete for entry in entries)} of {layout.partitions}"
        newest = time_text(max(entry.committed_at_ms for entry in entries)) if entries else ""
        rows, chunks = sum(entry.rows for entry in entries), sum(entry.chunks for entry in entries)
        add_row(table, job, rows, chunks, len(entries), complete, newest)
    return table


def _undecided_table(log: Backend) -> Table:
    table = table_of("undecided job", "rows", "partitions", "newest chunk")
    for job in log.jobs():
        plan = plan_now(log, job)
        entries = undecided_progress(log, plan) if plan else ()
        if entries:
            newest = time_text(max(entry.committed_at_ms for entry in entries))
            add_row(table, job, sum(entry.rows for entry in entries), len(entries), newest)
    return table


def _load_lock_table(load_locks: LoadLocks) -> Table:
    table = table_of("lock of job", "partitions", "since")
    for lock in load_locks.held:
        add_row(table, lock.job, lock.partitions_text, time_text(lock.granted_at_ms))
    return table


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


def _console() -> Console:
    """Return the console for tables. In a pipe its width is 240 columns."""
    return Console() if sys.stdout.isatty() else Console(width=240)
