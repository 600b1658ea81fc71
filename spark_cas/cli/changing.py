"""`trim`, `expand`, `abort`, `forget`: change a log or the entries of its jobs."""

import argparse
import sys

from spark_cas.cli.opening import duration_of, opened
from spark_cas.log import clock
from spark_cas.log.expanding import expand_log
from spark_cas.log.jobs import forget as forget_job_entries
from spark_cas.log.jobs import forget_job, older_jobs
from spark_cas.log.load.locking import abort_job
from spark_cas.programs.errors import UsageError

_COMPACTED = (
    "The topic is compacted, or this user may not read its settings. In a compacted topic, an old value of a key may "
    "stay in an earlier partition. If you delete such a key, a bootstrap returns the old value when compaction has "
    "removed the tombstone. If you delete keys, copy the state into a new topic with more partitions instead."
)


def trim(arguments: argparse.Namespace) -> None:
    """Delete records below an offset."""
    partition, before, dry_run = arguments.partition, arguments.before, arguments.dry_run
    with opened(arguments) as log:
        try:
            start = log.bounds(partition).start_offset
            bounds = log.trim(partition, before, dry_run=dry_run)
        except ValueError as error:
            raise UsageError(str(error)) from None
    change = "would start" if dry_run else "now starts"
    print(f"partition {partition} {change} at offset {bounds.start_offset} and ends at {bounds.end_offset}")
    if bounds.start_offset < before:
        deleted = "nothing" if bounds.start_offset == start else f"only offsets below {bounds.start_offset}"
        print(
            f"{'would delete' if dry_run else 'deleted'} {deleted}: a directory or object store deletes only whole "
            f"chunks, and never the newest chunk. Offset {bounds.start_offset} is the first of a chunk that ends "
            f"after offset {before}, or of the newest chunk"
        )
    elif before <= start:
        print(f"{'would delete' if dry_run else 'deleted'} nothing: the partition starts at offset {start}")


def expand(arguments: argparse.Namespace) -> None:
    """Add partitions."""
    with opened(arguments) as log:
        layout = expand_log(log, arguments.partitions, dry_run=arguments.dry_run)
        if log.tombstones_kept_ms() is not None:
            print(_COMPACTED, file=sys.stderr)
    if arguments.dry_run:
        print(f"{log.topic} would have {layout.partitions} partitions")
        return
    print(f"{log.topic} now has {layout.partitions} partitions, layout epoch {layout.epoch}")


def abort(arguments: argparse.Namespace) -> None:
    """End an abandoned load that blocks other loads."""
    with opened(arguments) as log:
        lock = abort_job(log, arguments.job, dry_run=arguments.dry_run)
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
    now_ms, dry_run = clock.now_ms(), arguments.dry_run
    with opened(arguments) as log:
        for job in jobs:
            rows = forget_job(log, job, now_ms, force=arguments.force, dry_run=dry_run)
            _print_forgotten(job, rows, dry_run=dry_run)
        for entry in () if age_ms is None else older_jobs(log, now_ms, age_ms):
            if forget_job_entries(log, entry, dry_run=dry_run):
                _print_forgotten(entry.job, entry.rows, dry_run=dry_run)


def _print_forgotten(job: str, rows: int, *, dry_run: bool) -> None:
    if dry_run:
        print(f"would forget job {job}: its {rows:,} rows would stay in the log")
        return
    print(f"forgot job {job}: its {rows:,} rows stay in the log, and a load of this name appends its rows again")
