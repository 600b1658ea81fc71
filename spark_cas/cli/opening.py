"""Arguments and options that name the log of a command."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from spark_cas.core.errors import LogError, OptionError
from spark_cas.log.backend import Backend
from spark_cas.log.open import AnySpec, is_named, open_log
from spark_cas.options.contradictions import LIMITS_OF_READS
from spark_cas.options.option import EVERYWHERE
from spark_cas.options.parse import ReadOptions, parse_read
from spark_cas.options.table import BY_KEY
from spark_cas.programs.exit_codes import UsageError
from spark_cas.programs.log_argument import log_address, options_beside

Address = Annotated[str | None, typer.Argument(metavar="LOG", help="Directory or URL of the log.")]
Servers = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Brokers, instead of LOG.")]
Topic = Annotated[str | None, typer.Option(metavar="NAME", help="The topic of these brokers that is the log.")]
LogOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--log-option",
        metavar="NAME=VALUE",
        help="An option of docs/options.md for the connection to the log, such as store.aws_region=eu-central-1 or "
        "kafka.security.protocol=SSL. Repeat for more.",
    ),
]

RANGE_OPTIONS = (*LIMITS_OF_READS, "startingOffsetsByTimestampStrategy", "failOnDataLoss")
"""The options of a read that select its records. `read` applies them."""


@contextmanager
def opened(
    log: str | None, servers: str | None, topic: str | None, log_options: list[str] | None
) -> Iterator[Backend]:
    """Open the log of a command line. Raises the errors of `options_of`. A LogError names the log."""
    spec = spec_of(log, servers, topic, log_options)
    with naming(spec), open_log(spec) as source:
        yield source


def spec_of(log: str | None, servers: str | None, topic: str | None, log_options: list[str] | None) -> AnySpec:
    """Return the spec of the log of a command line. Raises the errors of `options_of`."""
    return options_of(log, servers, topic, log_options).selection.only()


def options_of(
    log: str | None,
    servers: str | None,
    topic: str | None,
    log_options: list[str] | None,
    *,
    ranged: bool = False,
) -> ReadOptions:
    """Parse the address and the options of a command line.

    Args:
        log: The address of the log; None if brokers and a topic name it.
        servers: The brokers.
        topic: The topic.
        log_options: The values of ``--log-option``.
        ranged: Whether the command applies `RANGE_OPTIONS`.

    Raises:
        typer.BadParameter: The arguments are malformed, or name no log or several.
        OptionError: An option is unknown or malformed, or the command does not apply it.
    """
    pairs = [each.partition("=") for each in log_options or ()]
    if not all(equals for _, equals, _ in pairs):
        raise typer.BadParameter("expected NAME=VALUE", param_hint="--log-option")
    try:
        options = options_beside(((name.strip(), value) for name, _, value in pairs), "--log-option")
    except UsageError as error:
        raise typer.BadParameter(str(error), param_hint="--log-option") from None
    try:
        address = log_address(log, servers, topic)
    except UsageError as error:
        raise typer.BadParameter(str(error), param_hint="LOG") from None
    for name in options:
        _require_applied(name, ranged=ranged)
    return parse_read({**options, "path": address})


def _require_applied(name: str, *, ranged: bool) -> None:
    """Raise OptionError for a known option that the command does not apply."""
    option = BY_KEY.get(name.lower())
    if option is None or option.scopes == EVERYWHERE:
        return
    if option.name not in RANGE_OPTIONS:
        raise OptionError(f"option {option.name} has no effect in this command. Remove it from --log-option.")
    if not ranged:
        raise OptionError(
            f"option {option.name} is for spark-cas read without --from and --to. Remove it from --log-option."
        )


@contextmanager
def naming(spec: AnySpec) -> Iterator[None]:
    """Add the address of the log to a LogError that does not name it."""
    try:
        yield
    except LogError as error:
        if is_named(spec.url, error.message):
            raise
        raise error.with_message(f"{error.message} The log is {spec.url}.") from None
