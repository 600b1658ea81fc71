"""How the programs' command lines say where a log is."""

import argparse
from collections.abc import Iterable

from spark_cas.programs.exit_codes import UsageError

_ADDRESS = ("path", "paths", "kafka.bootstrap.servers", "topic")
"""The options that say where a log is, which the arguments of each command do."""

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
    """The argument ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError("expected NAME=VALUE")
    return name.strip(), value


def options_beside(given: Iterable[tuple[str, str]], argument: str, *own: str) -> dict[str, str]:
    """The options given by ``argument``, beside those that arguments of their own say: the address, and ``own``.

    UsageError for one of these, or for a name that is given twice: one of the values would be dropped silently.
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
    """One address from ``--log PATH`` or ``--bootstrap-servers HOST:PORT --topic NAME``; UsageError for else."""
    if (log is None) == (bootstrap_servers is None):
        raise UsageError("expected a log, or --bootstrap-servers with --topic, and one of the two only")
    if (bootstrap_servers is None) != (topic is None):
        raise UsageError("--bootstrap-servers and --topic go together")
    return log if log is not None else f"kafka://{bootstrap_servers}/{topic}"
