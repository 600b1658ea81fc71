"""Show a log and its jobs, and change them.

The commands are `describe`, `offsets`, `progress`, `jobs`, `trim`, `expand`, `abort` and `forget`.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from rich.console import Console, JustifyMethod
from rich.table import Table

from spark_cas.cli.command_line import json_line
from spark_cas.cli.opening import duration_of, opened
from spark_cas.core.errors import ChunkDamagedError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.plan import Layout
from spark_cas.log import clock
from spark_cas.log.backend import Backend
from spark_cas.log.clock import time_text
from spark_cas.log.expanding import expand_log
from spark_cas.log.jobs import JobPartition, JobState, forget_job, job_states, older_jobs, plans_of
from spark_cas.log.jobs import forget as forget_job_entries
from spark_cas.log.load.locking import abort_job
from spark_cas.log.load.planning import job_progress
from spark_cas.programs.errors import ExitCode, UsageError

_LONG = frozenset({"job", "planned", "newest chunk", "completed", "offsets", "lock of job"})
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
    _show(arguments, rows, lambda: _offsets_table(rows, f"{log.topic}, layout epoch {layout.epoch}"))


def progress(arguments: argparse.Namespace) -> None:
    """Show the progress of each job in each partition."""
    with opened(arguments) as log:
        rows: _Rows = [
            {"job": job, **{name: getattr(entry, name) for name in _PROGRESS}}
            for job in (log.jobs() if arguments.job is None else [each.job for each in plans_of(log, arguments.job)])
            for entry in job_progress(log, job)
        ]
    columns = ("job", "partition", "rows", "first offset", "end offset", "chunks", "complete", "newest chunk")
    cells = (
        (*numbers, "yes" if complete else "no", _time(newest_ms))
        for *numbers, complete, newest_ms in (row.values() for row in rows)
    )
    _show(arguments, rows, lambda: table_of(columns, cells, log.topic))


def jobs(arguments: argparse.Namespace) -> ExitCode:
    """List the jobs of a log: state, rows, times and offsets."""
    states = []
    with opened(arguments) as log:
        for each in job_states(log):
            states.append(each)
            if arguments.json:
                print(json_line(_fields_of(each)))
    if not arguments.json:
        _console().print(_jobs_table(states, log.topic))
    return _code_of(states)


def _fields_of(state: JobState) -> dict[str, Any]:
    return asdict(replace(state, error=None)) | {"error": None if state.error is None else state.error.message}


def _code_of(states: Iterable[JobState]) -> ExitCode:
    return ExitCode.LOG_UNUSABLE if any(each.error is not None for each in states) else ExitCode.COMPLETE


def _jobs_table(states: Iterable[JobState], title: str | None = None) -> Table:
    rows: list[tuple[int | str, ...]] = []
    for each in states:
        times = (each.planned_at_ms or None, each.newest_chunk_ms, each.completed_at_ms)
        state = f"{each.state}, load lock" if each.has_load_lock else each.state
        rows.append((each.job, state, each.rows, *map(_time, times), _offsets_text(each.partitions)))
    return table_of(("job", "state", "rows", "planned", "newest chunk", "completed", "offsets"), rows, title)


def _offsets_text(partitions: tuple[JobPartition, ...]) -> str:
    shown = [f"{each.partition}: {each.base_offset} to {each.end_offset}" for each in partitions[:_SHOWN_PARTITIONS]]
    more = len(partitions) - len(shown)
    return ", ".join([*shown, *([f"{more} more"] if more else [])])


def describe(arguments: argparse.Namespace) -> ExitCode:
    """Show a log: its layout, the offsets of each partition, its jobs and load locks."""
    with opened(arguments) as log:
        layout = log.layout()
        partitions = _offsets(log, layout)
        states = list(job_states(log))
        locks = log.load_locks().held
    if arguments.json:
        locked = [
            {"job": each.job, "partitions": sorted(each.partitions), "granted_at_ms": each.granted_at_ms}
            for each in locks
        ]
        result = {"log": log.topic, "log_id": layout.log_id, "layout_epoch": layout.epoch, "partitions": partitions}
        print(json_line({**result, "jobs": [_fields_of(each) for each in states], "load_locks": locked}))
        return _code_of(states)
    console = _console()
    head_line = f"{log.topic}: {layout.partitions:,} partitions, layout epoch {layout.epoch}, log id {layout.log_id}"
    console.print(head_line, markup=False, highlight=False, soft_wrap=True)
    console.print(_offsets_table(partitions))
    console.print(_jobs_table(states) if states else "no jobs")
    if locks:
        held = ((lock.job, lock.partitions_text, time_text(lock.granted_at_ms)) for lock in locks)
        console.print(table_of(("lock of job", "partitions", "since"), held))
    return _code_of(states)


def _show(arguments: argparse.Namespace, rows: _Rows, make_table: Callable[[], Table]) -> None:
    if arguments.json:
        for row in rows:
            print(json_line(row))
    else:
        _console().print(make_table())


def _offsets(log: Backend, layout: Layout) -> _Rows:
    bounds = log.bounds_of(range(layout.partitions), waiting=True)
    return [
        {"partition": partition, "start_offset": each.start_offset, "end_offset": each.end_offset}
        for partition, each in enumerate(bounds)
    ]


def _offsets_table(rows: _Rows, title: str | None = None) -> Table:
    columns = ("partition", "start offset", "end offset", "offsets kept")
    return table_of(columns, ((*row.values(), row["end_offset"] - row["start_offset"]) for row in rows), title)


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


_COMPACTED = (
    "The topic is compacted, or this user may not read its settings. In a compacted topic, an old value of a key may "
    "stay in an earlier partition. If you delete such a key, a bootstrap returns the old value when compaction has "
    "removed the tombstone. If you delete keys, copy the state into a new topic with more partitions instead."
)


def trim(arguments: argparse.Namespace) -> None:
    """Delete records below an offset, or records that are older than a duration."""
    partition, before = arguments.partition, arguments.before
    if (before is None) == (arguments.older_than is None) or (before is not None and partition is None):
        raise UsageError("give either --partition and --before, or --older-than. Nothing was deleted.")
    since_ms = 0 if before is not None else clock.now_ms() - duration_of(arguments.older_than, "--older-than")
    with opened(arguments) as log:
        try:
            partitions = range(log.layout().partitions) if partition is None else [partition]
            # Read all ranges before the first deletion, because a read may fail.
            ranges = {each: _range_to_trim(log, each, before, since_ms) for each in partitions}
            for each, requested in ranges.items():
                bounds = log.trim(each, requested.end_offset, dry_run=arguments.dry_run)
                _show_trim(each, requested, bounds, arguments)
        except ValueError as error:
            raise UsageError(str(error)) from None


def _range_to_trim(log: Backend, partition: int, before: int | None, since_ms: int) -> OffsetRange:
    """Return the offsets below ``before``, by default those before the first record of this time or later."""
    # Read the end first: records that are appended later may be as new.
    try:
        bounds = log.bounds(partition)
    except ChunkDamagedError:
        if before is None:
            raise
        return OffsetRange(0, before)  # a trim may delete the damaged chunk, and reads the end by itself
    if before is None:
        first = log.offset_since(partition, max(0, since_ms))
        before = bounds.end_offset if first is None else min(first, bounds.end_offset)
    return OffsetRange(bounds.start_offset, max(bounds.start_offset, before))


def _show_trim(partition: int, requested: OffsetRange, bounds: Bounds, arguments: argparse.Namespace) -> None:
    """Print the bounds of a partition after a trim of the requested offsets, and the cause if it deleted less."""
    if arguments.json:
        result = {"partition": partition, "start_offset": bounds.start_offset, "end_offset": bounds.end_offset}
        print(json_line({**result, "requested_offset": requested.end_offset, "dry_run": arguments.dry_run}))
        return
    change, deletes = ("would start", "would delete") if arguments.dry_run else ("now starts", "deleted")
    print(f"partition {partition} {change} at offset {bounds.start_offset} and ends at {bounds.end_offset}")
    if bounds.start_offset < requested.end_offset:
        kept = bounds.start_offset == requested.base_offset
        deleted = "nothing" if kept else f"only offsets below {bounds.start_offset}"
        print(
            f"{deletes} {deleted}: a directory or object store deletes only whole chunks, and never the newest "
            f"chunk. Offset {bounds.start_offset} is the first of a chunk that ends after offset "
            f"{requested.end_offset}, or of the newest chunk"
        )
    elif not requested:
        print(f"{deletes} nothing: the partition starts at offset {requested.base_offset}")


def expand(arguments: argparse.Namespace) -> None:
    """Add partitions."""
    with opened(arguments) as log:
        layout = expand_log(log, arguments.partitions, dry_run=arguments.dry_run)
        if log.tombstones_kept_ms() is not None:
            print(_COMPACTED, file=sys.stderr)
    if arguments.json:
        epoch = None if arguments.dry_run else layout.epoch
        result = {"log": log.topic, "partitions": layout.partitions, "layout_epoch": epoch}
        print(json_line({**result, "dry_run": arguments.dry_run}))
        return
    if arguments.dry_run:
        print(f"{log.topic} would have {layout.partitions} partitions")
        return
    print(f"{log.topic} now has {layout.partitions} partitions, layout epoch {layout.epoch}")


def abort(arguments: argparse.Namespace) -> None:
    """End an abandoned load that blocks other loads."""
    with opened(arguments) as log:
        lock = abort_job(log, arguments.job, dry_run=arguments.dry_run)
    if arguments.json:
        locked = None if lock is None else sorted(lock.partitions)
        print(json_line({"job": arguments.job, "locked_partitions": locked, "dry_run": arguments.dry_run}))
        return
    state = "undecided rows" if lock is None else f"the load lock of partitions {lock.partitions_text}"
    if arguments.dry_run:
        print(f"job {arguments.job} has {state} on {log.topic}, and would be aborted. Its visible rows would stay")
        return
    print(
        f"job {arguments.job} had {state} on {log.topic}. It was aborted, and other loads can start. Its visible "
        f"rows stay. If you run the same load again, it resumes after them"
    )


def forget(arguments: argparse.Namespace) -> None:
    """Remove the entries of jobs, such as their plans."""
    jobs, age = list(arguments.jobs), arguments.older_than
    arguments.log = jobs.pop() if arguments.bootstrap_servers is None and jobs else None
    if bool(jobs) == (age is not None):
        raise UsageError("name a JOB and the LOG, or --older-than and the LOG")
    if age is not None and arguments.force:
        raise UsageError("--force is for named jobs, and --older-than selects only complete ones: remove one of them")
    age_ms = None if age is None else duration_of(age, "--older-than")
    now_ms = clock.now_ms()
    with opened(arguments) as log:
        for job in jobs:
            rows = forget_job(log, job, now_ms, force=arguments.force, dry_run=arguments.dry_run)
            _print_forgotten(job, rows, arguments)
        for entry in () if age_ms is None else older_jobs(log, now_ms, age_ms):
            if forget_job_entries(log, entry, dry_run=arguments.dry_run):
                _print_forgotten(entry.job, entry.rows, arguments)


def _print_forgotten(job: str, rows: int, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print(json_line({"job": job, "rows": rows, "dry_run": arguments.dry_run}))
    elif arguments.dry_run:
        print(f"would forget job {job}: its {rows:,} rows would stay in the log")
    else:
        print(f"forgot job {job}: its {rows:,} rows stay in the log, and a load of this name appends its rows again")
