"""Command line of a program with commands, such as ``spark-cas read``, and its output as JSON."""

import argparse
import base64
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from io import TextIOWrapper

from spark_cas.core.errors import ConditionalLogError
from spark_cas.programs.arguments import Parser, add_options, add_topic
from spark_cas.programs.errors import ExitCode, UsageError, exit_code_of, line_of

_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029]")
"""Control characters and line separators that JSON does not escape."""


class CommandLine:
    """Parse and run the commands of a program."""

    def __init__(self, prog: str, description: str) -> None:
        self.parser = Parser(prog=prog, description=description, allow_abbrev=False)
        self._commands = self.parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")

    def add_command(self, name: str, description: str) -> argparse.ArgumentParser:
        """Add a command and return the parser of its arguments."""
        return self._commands.add_parser(name, help=description, description=description, allow_abbrev=False)

    @property
    def commands(self) -> Mapping[str, argparse.ArgumentParser]:
        """The parsers of the commands by name."""
        return self._commands.choices

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse a command line. If it is invalid, print usage and exit with 2."""
        if not argv:
            self.parser.print_help(sys.stderr)
            sys.exit(ExitCode.USAGE)
        command = self._commands.choices.get(argv[0])
        if command is None:
            return self.parser.parse_args(argv)
        # Before Python 3.12.7, parse_args takes no optional positional argument after an option. The other method
        # takes no ``--`` before a positional argument.
        parse = command.parse_args if "--" in argv else command.parse_intermixed_args
        return parse(argv[1:], argparse.Namespace(command=argv[0]))

    def run(self, argv: Sequence[str], execute: Callable[[argparse.Namespace], int | None]) -> int:
        """Parse and execute a command, print its error, and return the exit code.

        A command that returns None has the code 0.
        """
        arguments = self.parse(argv)
        as_json = getattr(arguments, "json", False)
        if isinstance(sys.stdout, TextIOWrapper):
            # A record may have characters that the terminal cannot encode. JSON is always UTF-8.
            sys.stdout.reconfigure(encoding="utf-8" if as_json else None, errors="backslashreplace")
        try:
            code = execute(arguments)
            sys.stdout.flush()
        except UsageError as error:
            self._commands.choices[arguments.command].error(str(error))
        except ConditionalLogError as error:
            print_error(error, with_fields=as_json)
            return exit_code_of(error)
        except KeyboardInterrupt:
            return ExitCode.INTERRUPTED
        except BrokenPipeError:
            # The reader of the pipe ended. Python would fail to flush stdout at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return ExitCode.FAILED
        return ExitCode.COMPLETE if code is None else code


def print_error(error: Exception, *, with_fields: bool = False) -> None:
    """Print an error on one line of stderr."""
    from rich.console import Console

    from spark_cas.programs.program import print_line

    print_line(Console(stderr=True), f"error: {error if with_fields else line_of(error)}", "red")


def add_log(command: argparse.ArgumentParser) -> None:
    """Add the arguments that name a log."""
    command.add_argument("log", nargs="?", metavar="LOG", help="directory or URL of the log")
    add_log_options(command)


def add_log_options(command: argparse.ArgumentParser) -> None:
    """Add the arguments for brokers and for the connection to the log."""
    command.epilog = "Give LOG, or --bootstrap-servers and --topic."
    add_topic(command, "LOG")
    add_options(
        command,
        "--log-option",
        "NAME=VALUE",
        "an option of docs/options.md for the connection to the log, such as store.aws_region=eu-central-1 or "
        "kafka.security.protocol=SSL; repeat it for more options",
    )


def whole_number(text: str) -> int:
    """Parse a number that is not negative."""
    if not text.isdecimal() or int(text) > sys.maxsize:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to {sys.maxsize}, found {text}")
    return int(text)


def json_line(value: object) -> str:
    """Return a value as one line of JSON. Letters of all languages stay as they are."""
    return one_line(json.dumps(value, ensure_ascii=False))


def one_line(text: str) -> str:
    """Return a text of JSON without characters that end a line or control a terminal."""
    return _UNSAFE.sub(lambda each: f"\\u{ord(each[0]):04x}", text)


def json_of(value: bytes | None) -> str | dict[str, str] | None:
    """Return bytes as text or, if they are not UTF-8, as ``{"base64": "..."}``."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
