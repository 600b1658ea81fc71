"""`expand`: add partitions."""

from typing import Annotated

import typer

from spark_cas.cli.opening import Address, LogOptions, Servers, Topic, opened
from spark_cas.log.expanding import expand_log

_COMPACTED = (
    "The topic is compacted, or its settings may not be seen. If it is compacted, keys that are deleted from now on "
    "come back in a bootstrap once their deletion is compacted away, for their old value stays in an earlier "
    "partition. If keys are deleted, copy the state into a new topic with as many partitions instead."
)


def expand(
    *,
    partitions: Annotated[int, typer.Option(help="How many partitions the log is to have.")],
    log: Address = None,
    bootstrap_servers: Servers = None,
    topic: Topic = None,
    log_option: LogOptions = None,
) -> None:
    """Add partitions, and keep the order of each key (KIP-253). After an interruption, run the same command again."""
    with opened(log, bootstrap_servers, topic, log_option) as source:
        layout = expand_log(source, partitions)
        if source.tombstones_kept_ms() is not None:
            typer.echo(_COMPACTED, err=True)
    typer.echo(f"{source.topic} now has {layout.partitions} partitions, layout epoch {layout.epoch}")
