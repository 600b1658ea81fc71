"""Adding partitions: `expand`."""

from typing import Annotated

import typer

from spark_cas.cli.opening import Address, LogOptions, Servers, Topic, opened
from spark_cas.log.expanding import expand_log


def expand(
    *,
    partitions: Annotated[int, typer.Option(help="How many partitions the log is to have.")],
    log: Address = None,
    bootstrap_servers: Servers = None,
    topic: Topic = None,
    log_option: LogOptions = None,
) -> None:
    """Add partitions so that the order of each key is kept (KIP-253). Interrupted, the same command finishes it."""
    with opened(log, bootstrap_servers, topic, log_option) as source:
        layout = expand_log(source, partitions)
    typer.echo(f"{source.topic} now has {layout.partitions} partitions, layout epoch {layout.epoch}")
