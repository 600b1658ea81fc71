"""`abort`: end an abandoned load that blocks other loads."""

from typing import Annotated

import typer

from spark_cas.cli.opening import Address, LogOptions, Servers, Topic, opened
from spark_cas.log.load.locking import abort_job


def abort(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job, as 'describe' lists it.")],
    log: Address = None,
    bootstrap_servers: Servers = None,
    topic: Topic = None,
    log_option: LogOptions = None,
) -> None:
    """End an abandoned load that blocks other loads: release its load lock, and abort its invisible rows."""
    with opened(log, bootstrap_servers, topic, log_option) as source:
        lock = abort_job(source, job)
    had = "undecided rows" if lock is None else f"the load lock of partitions {lock.told_partitions}"
    typer.echo(
        f"job {job} had {had} on {source.topic}. It was aborted, and other loads can start. Its visible rows stay. "
        f"If you run the same load again, it resumes after them"
    )
