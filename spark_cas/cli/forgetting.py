"""`forget`: remove the entries of jobs from a log, such as their plans."""

from typing import Annotated

import typer

from spark_cas.cli.opening import LogOptions, Servers, Topic, opened
from spark_cas.log import clock
from spark_cas.log.forgetting import forget as forget_kept
from spark_cas.log.forgetting import forget_job, older_jobs
from spark_cas.options.option import duration_ms

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[JOB]... [LOG]", help="The jobs, and last, unless brokers are given, the log's address."),
]


def forget(
    *,
    names: Names = None,
    bootstrap_servers: Servers = None,
    topic: Topic = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="In place of JOB: all that are complete and at rest for so long, such as 90d."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also a job that is not complete, or that ended within the last hour.")
    ] = False,
    log_option: LogOptions = None,
) -> None:
    """Remove the entries of jobs permanently. Their rows stay. A load with the same name appends its rows again."""
    jobs = list(names or ())
    address = jobs.pop() if bootstrap_servers is None and jobs else None
    if bool(jobs) == (older_than is not None):
        raise typer.BadParameter("name jobs and the log, or give --older-than and the log", param_hint="JOB")
    if older_than is not None and force:
        raise typer.BadParameter(
            "is for jobs that are named: --older-than takes complete ones only", param_hint="--force"
        )
    now_ms = clock.now_ms()
    age_ms = None if older_than is None else _age_ms(older_than)
    with opened(address, bootstrap_servers, topic, log_option) as source:
        for job in jobs:
            _tell(job, forget_job(source, job, now_ms, force=force))
        for kept in [] if age_ms is None else older_jobs(source, now_ms, age_ms):
            if forget_kept(source, kept):
                _tell(kept.job, kept.rows)


def _tell(job: str, rows: int) -> None:
    typer.echo(f"forgot job {job}: its {rows:,} rows stay in the log, and a load of this name appends its rows again")


def _age_ms(text: str) -> int:
    try:
        return duration_ms(text)
    except ValueError as error:
        raise typer.BadParameter(f"expected {error}", param_hint="--older-than") from None
