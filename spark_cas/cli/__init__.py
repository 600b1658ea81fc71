"""`spark-cas`: load files, read, trim and expand a log, and abort and forget jobs."""

import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Annotated

import typer

from spark_cas import __version__
from spark_cas.cli.aborting import abort
from spark_cas.cli.describing import describe, offsets, progress
from spark_cas.cli.expanding import expand
from spark_cas.cli.failing import fail
from spark_cas.cli.forgetting import forget
from spark_cas.cli.opening import Address, LogOptions, Servers, Topic, opened
from spark_cas.cli.records import read, tail
from spark_cas.core.errors import ConditionalLogError
from spark_cas.programs.errors import ExitCode

app = typer.Typer(
    help="Conditional publish for Spark: logs that take each row exactly once, at the expected offset.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the program, with the arguments of this process unless ``argv`` is given.

    If spark_cas raises an error, the program prints the message and ends with an exit code.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        # A record may have characters that the terminal cannot encode.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app(argv)
    except ConditionalLogError as error:
        fail(error)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"spark-cas {__version__}")
        raise typer.Exit


@app.callback()
def _about(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


# This command and jobs/bulk_load.py share a parser, so typer passes on all arguments.
@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def load(context: typer.Context) -> None:
    """Load parquet, csv or json files exactly once, with Spark on this machine. `load --help` for more."""
    from spark_cas.programs.bulk_load import main as bulk_load
    from spark_cas.programs.session import local_session

    code = bulk_load(context.args, "spark-cas load", lambda shown: local_session("spark-cas load", show_log=shown))
    raise typer.Exit(code)


for command in (describe, offsets, progress, read, tail, expand, abort, forget):
    app.command()(command)


@app.command()
def trim(
    *,
    partition: Annotated[int, typer.Option(min=0, help="The partition to trim.")],
    before: Annotated[int, typer.Option(min=0, help="Records below this offset may go.")],
    log: Address = None,
    bootstrap_servers: Servers = None,
    topic: Topic = None,
    log_option: LogOptions = None,
) -> None:
    """Delete records below an offset. A directory or object store deletes whole chunks, but never the newest one."""
    with opened(log, bootstrap_servers, topic, log_option) as source:
        try:
            bounds = source.trim(partition, before)
        except ValueError as error:
            fail(error, ExitCode.USAGE)
    typer.echo(f"partition {partition} now starts at offset {bounds.start_offset} and ends at {bounds.end_offset}")
