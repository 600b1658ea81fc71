"""`offsets`, `progress`, `describe`: show the state of a log and its jobs."""

from typing import Annotated

import typer
from rich.table import Table

from spark_cas.cli.opening import Address, LogOptions, Servers, Topic, opened
from spark_cas.cli.tables import add_row, console, table_of
from spark_cas.core.load_locks import LoadLocks
from spark_cas.core.plan import Layout
from spark_cas.log.backend import Backend
from spark_cas.log.clock import time_text
from spark_cas.log.load.after_expansion import plan_now
from spark_cas.log.load.planning import job_progress
from spark_cas.log.load.whole_load import undecided_progress


def offsets(
    log: Address = None, bootstrap_servers: Servers = None, topic: Topic = None, log_option: LogOptions = None
) -> None:
    """Show the offsets of each partition. The next conditional write of a partition expects its end offset."""
    with opened(log, bootstrap_servers, topic, log_option) as source:
        layout = source.layout()
        table = _offsets_table(source, layout)
        table.title = f"{source.topic}, layout epoch {layout.epoch}"
    console().print(table)


def progress(
    log: Address = None,
    bootstrap_servers: Servers = None,
    topic: Topic = None,
    job: Annotated[str | None, typer.Option(help="Only this job.")] = None,
    log_option: LogOptions = None,
) -> None:
    """Show the progress of each job in each partition."""
    table = table_of("job", "partition", "rows", "first offset", "end offset", "chunks", "complete", "newest chunk")
    with opened(log, bootstrap_servers, topic, log_option) as source:
        for name in source.jobs() if job is None else (job,):
            for entry in job_progress(source, name):
                numbers = (entry.partition, entry.rows, entry.base_offset, entry.end_offset, entry.chunks)
                complete, newest = "yes" if entry.complete else "no", time_text(entry.committed_at_ms)
                add_row(table, name, *numbers, complete, newest)
        table.title = source.topic
    console().print(table)


def describe(
    log: Address = None, bootstrap_servers: Servers = None, topic: Topic = None, log_option: LogOptions = None
) -> None:
    """Show a log: its layout, the offsets of each partition, the progress of jobs, and active loads."""
    with opened(log, bootstrap_servers, topic, log_option) as source:
        layout = source.layout()
        kept = _offsets_table(source, layout)
        jobs = _jobs_table(source, layout)
        load_locks = source.load_locks()
        undecided = _undecided_table(source)
    screen = console()
    head = f"{source.topic}: {layout.partitions:,} partitions, layout epoch {layout.epoch}, log id {layout.log_id}"
    screen.print(head, markup=False, highlight=False, soft_wrap=True)
    screen.print(kept)
    if jobs.row_count:
        screen.print(jobs)
    else:
        screen.print("no jobs")
    if load_locks.held:
        screen.print(_load_lock_table(load_locks))
    if undecided.row_count:
        screen.print(undecided)


def _offsets_table(source: Backend, layout: Layout) -> Table:
    table = table_of("partition", "start offset", "end offset", "offsets kept")
    for partition, bounds in enumerate(source.bounds_of(range(layout.partitions), waiting=True)):
        add_row(table, partition, bounds.start_offset, bounds.end_offset, len(bounds.range))
    return table


def _jobs_table(source: Backend, layout: Layout) -> Table:
    table = table_of("job", "rows", "chunks", "partitions", "complete", "newest chunk")
    for job in source.jobs():
        entries = job_progress(source, job)
        plan = plan_now(source, job)
        done = source.completion(job if plan is None else plan.job) is not None
        complete = "yes" if done else f"{sum(entry.complete for entry in entries)} of {layout.partitions}"
        newest = time_text(max(entry.committed_at_ms for entry in entries)) if entries else ""
        rows, chunks = sum(entry.rows for entry in entries), sum(entry.chunks for entry in entries)
        add_row(table, job, rows, chunks, len(entries), complete, newest)
    return table


def _undecided_table(source: Backend) -> Table:
    table = table_of("undecided job", "rows", "partitions", "newest chunk")
    for job in source.jobs():
        plan = plan_now(source, job)
        entries = undecided_progress(source, plan) if plan else ()
        if entries:
            newest = time_text(max(entry.committed_at_ms for entry in entries))
            add_row(table, job, sum(entry.rows for entry in entries), len(entries), newest)
    return table


def _load_lock_table(load_locks: LoadLocks) -> Table:
    table = table_of("lock of job", "partitions", "since")
    for lock in load_locks.held:
        add_row(table, lock.job, lock.told_partitions, time_text(lock.granted_at_ms))
    return table
