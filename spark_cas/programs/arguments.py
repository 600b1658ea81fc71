"""Arguments that the programs share: the log, the input, and the records that its rows become."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import PurePosixPath
from typing import Any, NoReturn
from urllib.parse import urlsplit

from spark_cas.core.input_list import InputFile, InputList, digested_arguments
from spark_cas.programs.errors import UsageError

FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".orc": "orc",
    ".avro": "avro",
    ".txt": "text",
}
"""Format by file suffix. A compression suffix is ignored."""
_ALL_FORMATS = (*sorted(set(FORMATS.values())), "binary")
_QUERY = "query"
"""The format of a load without files."""
_ROWS_ARE_VALUES = frozenset({"text", "binary"})
"""Formats whose rows have a column ``value``, which is the default of ``--value``."""
_COMPRESSED = frozenset({".gz", ".bz2", ".zst", ".lz4", ".snappy"})
_ADDRESS = ("path", "paths", "kafka.bootstrap.servers", "topic")
"""Options for the location of a log. Commands have their own arguments for them."""

Group = argparse._ActionsContainer  # noqa: SLF001 - argparse has no public name for a parser or a group


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """Input, records and log of a load. The arguments are checked before Spark starts."""

    inputs: tuple[str, ...]
    format: str
    log: str
    """Address of the log, in the format of `spark_cas.log.open.parse_address`."""
    key: str | None = None
    """SQL expression; None loads rows without a key."""
    value: str | None = None
    """SQL expression; None loads the whole row as JSON or Avro."""
    order_by: tuple[str, ...] = ()
    """SQL expressions, each of which may end in ASC or DESC."""
    schema: str | None = None
    """Columns and types of csv or json input, in SQL; None reads csv columns as strings and infers those of json."""
    read_options: tuple[tuple[str, str], ...] = ()
    log_options: tuple[tuple[str, str], ...] = ()
    """Options of the write under their names in docs/options.md, except path and job. They may be secret."""
    job: str | None = None
    """None if the caller named no job. A later run cannot resume such a load."""
    verify: bool = False
    query: str | None = None
    """A SQL query whose rows are loaded instead of files."""
    headers: tuple[tuple[str, str], ...] = ()
    """Name and SQL expression of each header of a record."""
    timestamp: str | None = None
    """SQL expression of each record's timestamp; None lets the log set it."""
    tombstones: bool = False
    """Whether a row may have a null value, which deletes its key."""
    allow_empty: bool = False
    """Whether input without rows completes the job."""
    value_avro: str | None = None
    """Subject of the Avro schema for the whole row; None for JSON."""
    registry: tuple[tuple[str, str], ...] = ()
    """Settings of the client of the schema registry. They may be secret."""
    bad_rows: str | None = None
    """The file for rows that cannot be appended; None if such a row fails the load."""

    @property
    def options(self) -> dict[str, str]:
        """Options of the log, with its address. They may be secret."""
        return {**dict(self.log_options), "path": self.log}

    @property
    def value_expression(self) -> str | None:
        """SQL expression of the value; None for the whole row."""
        return "value" if self.value is None and self.format in _ROWS_ARE_VALUES else self.value

    def listed(self, files: Sequence[InputFile]) -> InputList:
        """Return the files and the arguments that define the rows, for the registry."""
        arguments = {
            "--format": self.format,
            "--header": self.headers,
            # The same files have other columns if the input is a folder such as region=007, and not the one above it.
            "--input (folders that become columns)": tuple(
                sorted({"/".join(each.folders_above) for each in files} - {""})
            ),
            "--key": self.key,
            "--order-by": self.order_by,
            "--query": self.query,
            "--read-option": sorted(self.read_options),
            "--schema": self.schema,
            "--timestamp": self.timestamp,
            "--value": self.value,
            "--value-avro": self.value_avro,
        }
        return InputList(tuple(files), digested_arguments(arguments))

    def __repr__(self) -> str:
        return f"LoadRequest(job={self.job!r}, inputs={self.inputs!r})"


class Parser(argparse.ArgumentParser):
    """A parser whose errors contain no text after the first equals sign of an argument, because it may be secret."""

    _values: frozenset[str] = frozenset()

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse arguments, or print usage and exit with 2."""
        self._hide_values_of(args)
        return super().parse_args(args, namespace)

    def parse_intermixed_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse arguments of which optional ones may be between positional ones, as `parse_args` does."""
        self._hide_values_of(args)
        return super().parse_intermixed_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print usage and the message, and exit with 2."""
        # The longest value is first, because it may begin with another one.
        for value in sorted(self._values, key=len, reverse=True):
            message = message.replace(f"={value}", "=...").replace(f"={repr(value)[1:-1]}", "=...")
            message = message.replace(repr(value), "'...'")
        super().error(message)

    def _hide_values_of(self, args: Sequence[str] | None) -> None:
        values = (each.partition("=")[2] for each in (sys.argv[1:] if args is None else args))
        self._values = frozenset(filter(None, values))


def parser_of(prog: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """Return a parser with the argument ``--traceback``."""
    parser = Parser(
        prog=prog,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--traceback", action="store_true", help="show the traceback of an error, and Spark's log")
    return parser


def add_log(group: Group) -> None:
    """Add ``--log``, or ``--bootstrap-servers`` and ``--topic``, and ``--log-option``."""
    group.add_argument("--log", metavar="PATH", help="directory or URL of the log")
    add_topic(group, "--log")
    add_options(
        group,
        "--log-option",
        "NAME=VALUE",
        "any other option of docs/options.md, such as store.aws_region=eu-central-1 or kafka.batch.size=500000",
    )


def add_topic(group: Group, log: str) -> None:
    """Add ``--bootstrap-servers`` and ``--topic``, which replace the argument ``log``."""
    group.add_argument(
        "--bootstrap-servers", metavar="HOST:PORT", help=f"replaces {log}: brokers, several separated by commas"
    )
    group.add_argument("--topic", metavar="NAME", help="the topic of these brokers that is the log")


def add_options(group: Group, name: str, metavar: str, help_text: str, dest: str | None = None) -> None:
    """Add an argument for names and values that may be repeated."""
    parse = _name_and_value
    group.add_argument(name, dest=dest, type=parse, action="append", default=[], metavar=metavar, help=help_text)


def _name_and_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError("expected NAME=VALUE")
    return name.strip(), value


def checked_options(pairs: Iterable[tuple[str, str]], argument: str, *own: str) -> dict[str, str]:
    """Return the options of ``argument`` as a dict.

    Raises UsageError if a name occurs twice (names are case-insensitive), or if an option has an argument of its own:
    those in ``own``, and the location of the log.
    """
    options: dict[str, str] = {}
    reserved = {each.lower() for each in (*_ADDRESS, *own)}
    for name, value in pairs:
        if name.lower() in reserved:
            raise UsageError(f"{argument} {name}: the command or another argument sets this option. Remove it.")
        if name.lower() in map(str.lower, options):
            raise UsageError(f"{argument} {name}: the option occurs twice (its case is ignored). Remove one.")
        options[name] = value
    return options


def log_address(arguments: argparse.Namespace) -> str:
    """Return the address of a log from ``--log PATH`` or ``--bootstrap-servers HOST:PORT --topic NAME``.

    Raises UsageError if the arguments name no log, or more than one.
    """
    log, brokers, topic = arguments.log, arguments.bootstrap_servers, arguments.topic
    if (log is None) == (brokers is None):
        raise UsageError("expected a log, or --bootstrap-servers with --topic, and only one of the two")
    if (brokers is None) != (topic is None):
        raise UsageError("--bootstrap-servers and --topic require each other")
    return f"kafka://{brokers}/{topic}" if log is None else str(log)


def add_input(group: Group) -> None:
    """Add the arguments that name the input and its format."""
    source = group.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--input",
        dest="inputs",
        nargs="+",
        action="extend",
        metavar="PATH",
        help="files, folders or patterns; a folder is read recursively without names that begin with _ or .",
    )
    source.add_argument("--query", metavar="SQL", help="load the rows of a query instead of files")
    group.add_argument("--format", choices=_ALL_FORMATS, help="default: by the suffix of --input")
    group.add_argument("--schema", metavar="DDL", help="columns of csv or json, such as 'id BIGINT, name STRING'")
    reader = "an option of the reader, such as sep=; (docs/loading.md lists them)"
    add_options(group, "--read-option", "NAME=VALUE", reader, dest="read_options")


def add_rows(group: Group) -> None:
    """Add the arguments that define the records."""
    group.add_argument(
        "--key",
        metavar="SQL",
        help="the key as a SQL expression, string or binary; for json also a path such as $.id; default: no key",
    )
    value = group.add_mutually_exclusive_group()
    value.add_argument(
        "--value",
        metavar="SQL",
        help="the value as a SQL expression, string or binary; default for text and binary: the line or file",
    )
    value.add_argument(
        "--value-json", action="store_true", help="the value is the row as JSON; for json the unchanged document"
    )
    value.add_argument(
        "--value-avro",
        metavar="SUBJECT",
        help="the value is the row as Avro, with the schema of a subject, or of its version as in flights-value@3",
    )
    add_registry(group)
    header = "a header of each record, string or binary; repeat it for more headers"
    add_options(group, "--header", "NAME=SQL", header, dest="headers")
    group.add_argument("--timestamp", metavar="SQL", help="the timestamp of each record; default: set by the log")
    group.add_argument(
        "--order-by",
        action="append",
        default=[],
        metavar="SQL",
        help="order of the rows in a partition, may end in DESC; repeat it for more (then by position in the input)",
    )


def add_registry(group: Group) -> None:
    """Add ``--registry`` and ``--registry-option``."""
    group.add_argument("--registry", metavar="URL", help="URL of the schema registry, for Avro")
    add_options(
        group,
        "--registry-option",
        "NAME=VALUE",
        "a setting of its client, such as basic.auth.user.info=env:REGISTRY_LOGIN",
    )


def registry_settings(arguments: argparse.Namespace, *, uses_avro: bool) -> tuple[tuple[str, str], ...]:
    """Return the settings of `add_registry`. Raises UsageError if they are missing, or have no effect."""
    if uses_avro and arguments.registry is None:
        raise UsageError("Avro values need the schema registry. Add --registry URL.")
    if not uses_avro and (arguments.registry is not None or arguments.registry_option):
        raise UsageError("--registry and --registry-option are for Avro values. Remove them.")
    settings = [] if arguments.registry is None else [("url", arguments.registry)]
    return (*settings, *checked_options(arguments.registry_option, "--registry-option", "url").items())


def load_request(arguments: argparse.Namespace, *own_options: str) -> LoadRequest:
    """Return the request from the arguments of `add_log`, `add_input`, `add_rows` and of the program itself.

    ``own_options`` are options of the log that have an argument of the same name. Raises UsageError if the arguments
    contradict each other.
    """
    parsed: dict[str, Any] = {
        each.name: tuple(value) if isinstance(value, list) else value
        for each in fields(LoadRequest)
        if (value := getattr(arguments, each.name, None)) is not None
    }
    own = {name: value for name in own_options if (value := getattr(arguments, name)) is not None}
    reserved = [*own, "job"] if "job" in arguments else own
    parsed |= {
        "inputs": parsed.get("inputs", ()),
        "format": _format_of(arguments),
        "log": log_address(arguments),
        "log_options": (*checked_options(arguments.log_option, "--log-option", *reserved).items(), *own.items()),
        "registry": registry_settings(arguments, uses_avro=arguments.value_avro is not None),
    }
    return LoadRequest(**parsed)


def _format_of(arguments: argparse.Namespace) -> str:
    """Return the format of the input. Raises UsageError if another argument contradicts it."""
    if arguments.query is None:
        result = arguments.format or _format_by_suffix(arguments.inputs)
    elif arguments.format or arguments.schema or arguments.read_options:
        raise UsageError("--format, --schema and --read-option describe files: remove them, or remove --query")
    elif getattr(arguments, "bad_rows", None) is not None:
        # The query runs twice, and its rows may change in between.
        raise UsageError("--bad-rows is for files: remove it, or write the rows of the query to files first")
    else:
        result = _QUERY
    is_whole_row = arguments.value_json or arguments.value_avro is not None
    if arguments.value is None and not is_whole_row and result not in _ROWS_ARE_VALUES:
        raise UsageError("one of the arguments --value --value-json --value-avro is required")
    if arguments.schema is not None and result not in ("csv", "json"):
        raise UsageError(f"--schema is for csv and json: {result} input has its own types")
    if is_whole_row and result in _ROWS_ARE_VALUES:
        raise UsageError(
            f"--value-json and --value-avro are for rows with columns, and --format {result} has one value per row"
        )
    return str(result)


def _format_by_suffix(paths: Iterable[str]) -> str:
    formats = {_suffix_format(each) for each in paths}
    if len(formats) == 1 and (only := formats.pop()) is not None:
        return only
    raise UsageError(
        f"the names of the input do not show one format: expected one of the suffixes {', '.join(FORMATS)} for all "
        f"of them. Add --format."
    )


def _suffix_format(path: str) -> str | None:
    try:
        parsed = urlsplit(path)
    except ValueError:
        return None
    name = PurePosixPath(parsed.path if len(parsed.scheme) > 1 else path)
    suffixes = [each.lower() for each in name.suffixes if each.lower() not in _COMPRESSED]
    return FORMATS.get(suffixes[-1]) if suffixes else None
