"""Command-line arguments that locate a log."""

import argparse
from collections.abc import Iterable

from spark_cas.programs.errors import UsageError

_ADDRESS = ("path", "paths", "kafka.bootstrap.servers", "topic")
"""Options for the location of a log. Commands have their own arguments for them."""

Group = argparse._ArgumentGroup  # noqa: SLF001 - argparse gives its groups no public name


def add_log_arguments(group: Group) -> None:
    """Add ``--log``, or ``--bootstrap-servers`` and ``--topic``, and ``--log-option``."""
    group.add_argument("--log", metavar="PATH", help="directory or URL of the log")
    group.add_argument(
        "--bootstrap-servers", metavar="HOST:PORT", help="in place of --log: brokers, several separated by commas"
    )
    group.add_argument("--topic", metavar="NAME", help="the topic of these brokers that is the log")
    group.add_argument(
        "--log-option",
        type=name_and_value,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other option of docs/options.md, such as store.aws_region=eu-central-1 or kafka.batch.size=500000",
    )


def name_and_value(text: str) -> tuple[str, str]:
    """Parse an argument ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError("expected NAME=VALUE")
    return name.strip(), value


def options_beside(given: Iterable[tuple[str, str]], argument: str, *own: str) -> dict[str, str]:
    """Return the options of ``argument`` as a dict.

    Args:
        given: names and values in order
        argument: the name of the argument for error messages
        own: further options that have arguments of their own

    Raises:
        UsageError: if an option has its own argument, or a name occurs twice (names are case-insensitive)
    """
    options: dict[str, str] = {}
    said = {each.lower() for each in (*_ADDRESS, *own)}
    for name, value in given:
        if name.lower() in said:
            raise UsageError(f"{argument} {name}: the command or another argument says that. Leave it out.")
        if name.lower() in map(str.lower, options):
            raise UsageError(
                f"{argument} {name}: it is given twice, and upper and lower case are the same. Give one."
            )
        options[name] = value
    return options


def log_address(log: str | None, bootstrap_servers: str | None, topic: str | None) -> str:
    """Return the address of a log from ``--log PATH`` or ``--bootstrap-servers HOST:PORT --topic NAME``.

    Raises:
        UsageError: if the arguments name no log, or more than one
    """
    if (log is None) == (bootstrap_servers is None):
        raise UsageError("expected a log, or --bootstrap-servers with --topic, and one of the two only")
    if (bootstrap_servers is None) != (topic is None):
        raise UsageError("--bootstrap-servers and --topic go together")
    return log if log is not None else f"kafka://{bootstrap_servers}/{topic}"
