"""`spark-cas`: load files into a log, look at a log, trim it."""

import sys
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from spark_cas.core.errors import ConditionalLogError
from spark_cas.log.open import open_log
from spark_cas.log.planning import job_progress
from spark_cas.log.protocol import Backend
from spark_cas.spark.exit_codes import ExitCode, UsageError, exit_code_of
from spark_cas.spark.log_argument import log_address
from spark_cas.spark.options import parse_read

app = typer.Typer(
    help="Conditional publish for Spark: logs that take each row exactly once, at the expected offset.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_Log = Annotated[str | None, typer.Argument(metavar="LOG", help="Directory or URL of the log.")]
_Servers = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="In place of LOG: brokers.")]
_Topic = Annotated[str | None, typer.Option(metavar="NAME", help="The topic of these brokers that is the log.")]
_LogOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--log-option",
        metavar="NAME=VALUE",
        help="An option of docs/options.md that a read takes, such as store.aws_region=eu-central-1 or "
        "kafka.security.protocol=SSL. Repeat for more.",
    ),
]


def main() -> None:
    """Run the program; what is wrong with the log or the call ends in a message and an exit code."""
    try:
        app()
    except ConditionalLogError as error:
        _fail(error)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"spark-cas {version('spark-cas')}")
        raise typer.Exit


@app.callback()
def _about(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


# One parser serves this command and jobs/bulk_load.py, so that their arguments are the same: typer hands all on.
@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def load(context: typer.Context) -> None:
    """Load parquet, csv or json files exactly once, with Spark on this machine. `load --help` for more."""
    from spark_cas.spark.bulk_load import main as bulk_load
    from spark_cas.spark.session import local_session

    code = bulk_load(context.args, "spark-cas load", lambda debug: local_session("spark-cas load", show_log=debug))
    raise typer.Exit(code)


@app.command()
def offsets(
    log: _Log = None, bootstrap_servers: _Servers = None, topic: _Topic = None, log_option: _LogOptions = None
) -> None:
    """Show what each partition keeps; its end offset is what the next conditional write expects."""
    table = _table("partition", "start offset", "end offset", "offsets kept")
    with _open(log, bootstrap_servers, topic, log_option) as opened:
        layout = opened.layout()
        for partition in range(layout.partitions):
            bounds = opened.bounds(partition)
            _add(table, partition, bounds.start_offset, bounds.end_offset, len(bounds.range))
    table.title = f"{opened.topic}, layout epoch {layout.epoch}"
    _console().print(table)


@app.command()
def progress(
    log: _Log = None,
    bootstrap_servers: _Servers = None,
    topic: _Topic = None,
    job: Annotated[str | None, typer.Option(help="Only this job.")] = None,
    log_option: _LogOptions = None,
) -> None:
    """Show how far each job came in each partition."""
    table = _table("job", "partition", "rows", "first offset", "end offset", "chunks", "complete", "newest chunk")
    with _open(log, bootstrap_servers, topic, log_option) as opened:
        for name in opened.jobs() if job is None else (job,):
            for entry in job_progress(opened, name):
                numbers = (entry.partition, entry.rows, entry.base_offset, entry.end_offset, entry.chunks)
                _add(table, name, *numbers, "yes" if entry.complete else "no", _time(entry.committed_at_ms))
    table.title = opened.topic
    _console().print(table)


@app.command()
def trim(
    *,
    partition: Annotated[int, typer.Option(min=0, help="The partition to trim.")],
    before: Annotated[int, typer.Option(min=0, help="Records below this offset may go.")],
    log: _Log = None,
    bootstrap_servers: _Servers = None,
    topic: _Topic = None,
    log_option: _LogOptions = None,
) -> None:
    """Delete old records below an offset. In a directory or object store whole chunks go, and never the newest."""
    with _open(log, bootstrap_servers, topic, log_option) as opened:
        try:
            bounds = opened.trim(partition, before)
        except ValueError as error:
            _fail(error, ExitCode.USAGE)
    typer.echo(f"partition {partition} now starts at offset {bounds.start_offset} and ends at {bounds.end_offset}")


def _open(log: str | None, servers: str | None, topic: str | None, log_options: list[str] | None) -> Backend:
    pairs = [each.partition("=") for each in log_options or ()]
    if not all(equals for _, equals, _ in pairs):
        raise typer.BadParameter("expected NAME=VALUE", param_hint="--log-option")
    try:
        address = log_address(log, servers, topic)
    except UsageError as error:
        raise typer.BadParameter(str(error), param_hint="LOG") from None
    return open_log(
        parse_read({**{name.strip(): value for name, _, value in pairs}, "path": address}).selection.only()
    )


def _table(*columns: str) -> Table:
    table = Table()
    for column in columns:
        numeric = column not in ("job", "complete", "newest chunk")
        table.add_column(column, justify="right" if numeric else "left", no_wrap=True)
    return table


def _add(table: Table, *cells: int | str) -> None:
    table.add_row(*(f"{cell:,}" if isinstance(cell, int) else cell for cell in cells))


def _console() -> Console:
    # In a pipe there is no screen whose width matters.
    return Console() if sys.stdout.isatty() else Console(width=240)


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(" ", "seconds").removesuffix("+00:00")


def _fail(error: Exception, code: ExitCode | None = None) -> None:
    Console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
    sys.exit(exit_code_of(error) if code is None else code)


if __name__ == "__main__":
    main()
