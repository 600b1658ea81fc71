"""Open the log that the arguments of a command name."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from spark_cas.core.errors import LogError, OptionError
from spark_cas.log import clock
from spark_cas.log.backend import Backend
from spark_cas.log.open import AnySpec, is_named, open_log
from spark_cas.options.parse import LIMITS_OF_READS, parse_read
from spark_cas.options.request import ReadRequest
from spark_cas.options.table import BY_KEY, EVERYWHERE, duration_ms
from spark_cas.programs.arguments import checked_options, log_address
from spark_cas.programs.errors import UsageError

STARTS = (*(each for each in LIMITS_OF_READS if each.startswith("starting")), "startingOffsetsByTimestampStrategy")
"""The options that ``--since`` replaces."""
RANGE_OPTIONS = (*LIMITS_OF_READS, "startingOffsetsByTimestampStrategy", "failOnDataLoss")
"""The options of a read that select its records. `read` applies them."""


@contextmanager
def opened(arguments: argparse.Namespace) -> Iterator[Backend]:
    """Open the log of a command line. Raises the errors of `read_options`. A LogError names the log."""
    spec = read_options(arguments).selection.only()
    with naming(spec), open_log(spec) as log:
        yield log


def read_options(arguments: argparse.Namespace, *, ranged: bool = False) -> ReadRequest:
    """Parse the address and the options of a command line, which `spark_cas.cli.command_line.add_log` added.

    With ``ranged``, the command applies `RANGE_OPTIONS`.

    Raises:
        UsageError: if the arguments are malformed, or name no log or several
        OptionError: if an option is unknown or malformed, or the command does not apply it
    """
    since = _since(arguments)
    options = checked_options(arguments.log_option, "--log-option", *(STARTS if since else ()))
    address = log_address(arguments)
    for name in options:
        _require_applied(name, ranged=ranged)
    return parse_read({**options, **since, "path": address})


def _since(arguments: argparse.Namespace) -> dict[str, str]:
    """Convert ``--since`` to read options. Raises UsageError."""
    text = getattr(arguments, "since", None)
    if text is None:
        return {}
    start_ms = max(0, clock.now_ms() - duration_of(text, "--since"))
    # Without such a record, the read is empty.
    return {"startingTimestamp": str(start_ms), "startingOffsetsByTimestampStrategy": "latest"}


def duration_of(text: str, argument: str) -> int:
    """Parse a duration such as ``90d`` to milliseconds. Raises UsageError, which names the argument."""
    if text.strip().isdigit():
        # An option takes it as milliseconds, which is too short to be meant here.
        raise UsageError(f"{argument}: expected a duration with a unit, such as 12h or 90d")
    try:
        return duration_ms(text)
    except ValueError as error:
        raise UsageError(f"{argument}: expected {error}") from None


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
