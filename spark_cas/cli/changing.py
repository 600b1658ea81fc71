"""`trim`, `expand`, `abort`, `forget`: change a log or the entries of its jobs."""

import argparse
import sys

from spark_cas.cli.opening import opened
from spark_cas.log import clock
from spark_cas.log.expanding import expand_log
from spark_cas.log.forgetting import forget as forget_job_entries
from spark_cas.log.forgetting import forget_job, older_jobs
from spark_cas.log.load.locking import abort_job
from spark_cas.options.option import duration_ms
from spark_cas.programs.errors import UsageError

_COMPACTED = (
    "The topic is compacted, or this user may not read its settings. In a compacted topic, an old value of a key may "
    "stay in an earlier partition. If you delete such a key, a bootstrap returns the old value when compaction has "
    "removed the tombstone. If you delete keys, copy the state into a new topic with more partitions instead."
)


def trim(arguments: argparse.Namespace) -> None:
    """Delete records below an offset."""
    with opened(arguments) as log:
        try:
            bounds = log.trim(arguments.partition, arguments.before)
        except ValueError as error:
            raise UsageError(str(error)) from None
    print(
        f"partition {arguments.partition} now starts at offset {bounds.start_offset} and ends at {bounds.end_offset}"
    )


def expand(arguments: argparse.Namespace) -> None:
    """Add partitions."""
    with opened(arguments) as log:
        layout = expand_log(log, arguments.partitions)
        if log.tombstones_kept_ms() is not None:
            print(_COMPACTED, file=sys.stderr)
    print(f"{log.topic} now has {layout.partitions} partitions, layout epoch {layout.epoch}")


def abort(arguments: argparse.Namespace) -> None:
    """End an abandoned load that blocks other loads."""
    with opened(arguments) as log:
        lock = abort_job(log, arguments.job)
    state = "undecided rows" if lock is None else f"the load lock of partitions {lock.partitions_text}"
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
    age_ms = None if age is None else _age_ms(age)
    now_ms = clock.now_ms()
    with opened(arguments) as log:
        for job in jobs:
            _print_forgotten(job, forget_job(log, job, now_ms, force=arguments.force))
        for entry in () if age_ms is None else older_jobs(log, now_ms, age_ms):
            if forget_job_entries(log, entry):
                _print_forgotten(entry.job, entry.rows)


def _print_forgotten(job: str, rows: int) -> None:
    print(f"forgot job {job}: its {rows:,} rows stay in the log, and a load of this name appends its rows again")


def _age_ms(text: str) -> int:
    try:
        return duration_ms(text)
    except ValueError as error:
        raise UsageError(f"--older-than: expected {error}") from None
