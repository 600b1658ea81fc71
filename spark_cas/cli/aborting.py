"""`abort`: end an abandoned load that blocks other loads."""

from typing import Annotated

import typer

from spark_cas.cli.opening import Address, LogOptions, Servers, Topic, opened
from spark_cas.log.load.granting import abort_job


def abort(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job, as 'describe' lists it.")],
    log: Address = None,
    bootstrap_servers: Servers = None,
    topic: Topic = None,
    log_option: LogOptions = None,
) -> None:
    """End an abandoned load that blocks other loads: release its grant, and abort its rows that are not visible."""
    with opened(log, bootstrap_servers, topic, log_option) as source:
        grant = abort_job(source, job)
    had = "rows that are undecided" if grant is None else f"a grant (partitions {grant.told_partitions})"
    typer.echo(
        f"job {job} had {had} on {source.topic}, and has not any more: others may load. What of it was visible "
        f"stays; the same load, run again, goes on behind that"
    )
