"""The key-value store: `serve` runs a node; `get`, `put`, `cas` and `delete` send requests to the nodes."""

import argparse
import json
import math
import os
import sys
from collections.abc import Sequence

from key_value_store.cli_serve import add_access, add_serve, serve
from key_value_store.http.access import Access
from key_value_store.http.client import REQUEST_SECONDS, Client
from key_value_store.values import ANY, Expected
from spark_cas import ConditionalLogError
from spark_cas.cli.command_line import CommandLine, json_of, print_error, whole_number
from spark_cas.core.errors import UnknownOutcomeError
from spark_cas.programs.errors import ExitCode, UsageError

UNKNOWN_OUTCOME = 6
"""Exit code: the outcome of the write is unknown, and the same command may write twice."""
NODES = "SPARK_CAS_KV_NODES"
"""Environment variable with the nodes, separated by spaces."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program, by default with the arguments of this process, and return the exit code."""
    return command_line().run(sys.argv[1:] if argv is None else argv, _execute)


def command_line() -> CommandLine:
    """Return the commands and their arguments."""
    program = CommandLine(
        "key_value_store",
        "A replicated key-value store over a log: nodes and a client. See examples/key_value_store/README.md.",
    )
    add_serve(program)
    get = program.add_command("get", "Show the value of a key, as raw bytes. The exit code for an absent key is 3.")
    _add_request(get)
    get.add_argument(
        "--stale",
        action="store_true",
        help="read from any node at once; the value may be older than the last acknowledged one",
    )
    get.add_argument("--json", action="store_true", help="print a JSON object with value and version")
    put = program.add_command("put", "Set a key unconditionally, and show its new version.")
    _add_request(put)
    _add_value(put)
    cas = program.add_command(
        "cas",
        "Set a key if it has the version of --version, or is absent with --absent, and show its new version. If the "
        "key has another version, nothing is written, and the exit code is 3.",
    )
    _add_request(cas)
    _add_value(cas)
    expected = cas.add_mutually_exclusive_group(required=True)
    _add_version(expected)
    expected.add_argument("--absent", action="store_true", help="expect the key to be absent")
    delete = program.add_command(
        "delete", "Remove a key, with --version only if it has that version, and show the offset of the deletion."
    )
    _add_request(delete)
    _add_version(delete)
    return program


def _add_request(command: argparse.ArgumentParser) -> None:
    command.add_argument("key", metavar="KEY", help="the key, as the raw bytes of the argument")
    command.add_argument(
        "--node",
        action="append",
        metavar="HOST:PORT",
        help=f"a node; repeat it for more nodes, which the client tries in turn; default: those in {NODES}",
    )
    command.add_argument(
        "--timeout",
        type=_seconds,
        default=REQUEST_SECONDS,
        metavar="SECONDS",
        help="the timeout of the command",
    )
    add_access(command)


def _add_value(command: argparse.ArgumentParser) -> None:
    command.add_argument("value", metavar="VALUE", help="the value; - reads it from the standard input")


def _add_version(command: argparse._ActionsContainer) -> None:
    command.add_argument("--version", type=whole_number, metavar="VERSION", help="the expected version of the key")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"expected a number of seconds above 0, found {text}")
    return seconds


def _execute(arguments: argparse.Namespace) -> None:
    if arguments.command == "serve":
        serve(arguments)
        return
    nodes = arguments.node or os.environ.get(NODES, "").split()
    if not nodes:
        raise UsageError("the following arguments are required: --node")
    try:
        _request(arguments, Client(nodes, Access.of_files(arguments.token_file, arguments.tls_ca)))
    except UnknownOutcomeError as error:
        print_error(error)
        sys.exit(UNKNOWN_OUTCOME)
    except ConditionalLogError:
        raise
    except ValueError as error:
        raise UsageError(str(error)) from error


def _request(arguments: argparse.Namespace, client: Client) -> None:
    """Send the request of a command, and print the result. Raises ValueError for an invalid key."""
    key, timeout = os.fsencode(arguments.key), arguments.timeout
    if arguments.command == "get":
        _get(client, key, arguments)
    elif arguments.command == "put":
        print(client.put(key, _value(arguments), timeout=timeout))
    elif arguments.command == "cas":
        print(client.put(key, _value(arguments), expected_version=arguments.version, timeout=timeout))
    else:
        expected: Expected = ANY if arguments.version is None else arguments.version
        print(client.delete(key, expected_version=expected, timeout=timeout))


def _get(client: Client, key: bytes, arguments: argparse.Namespace) -> None:
    result = client.get(key, stale=arguments.stale, timeout=arguments.timeout)
    if arguments.json:
        print(json.dumps({"value": json_of(result.value), "version": result.version}))
    elif result.value is None:
        print("the key is absent", file=sys.stderr)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(result.value)
        sys.stdout.buffer.flush()
    if result.value is None:
        sys.exit(ExitCode.REFUSED)


def _value(arguments: argparse.Namespace) -> bytes:
    return sys.stdin.buffer.read() if arguments.value == "-" else os.fsencode(arguments.value)
