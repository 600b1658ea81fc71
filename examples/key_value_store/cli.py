"""The key-value store: `serve` runs a node; `get`, `put`, `cas` and `delete` send requests to the nodes."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Annotated

import typer

from key_value_store.cli_serve import serve
from key_value_store.http.client import REQUEST_SECONDS, Client
from key_value_store.values import ANY, Expected
from spark_cas import ConditionalLogError
from spark_cas.cli.failing import fail
from spark_cas.cli.lines import json_of
from spark_cas.core.errors import UnknownOutcomeError
from spark_cas.programs.errors import ExitCode

UNKNOWN_OUTCOME = 6
"""Exit code: the outcome of the write is unknown, and the same command may write twice."""

app = typer.Typer(
    help="A replicated key-value store over a log: nodes and a client. See examples/key_value_store/README.md.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Key = Annotated[str, typer.Argument(metavar="KEY", help="The key, as the raw bytes of the argument.")]
Value = Annotated[str, typer.Argument(metavar="VALUE", help="The value; - reads it from the standard input.")]
Nodes = Annotated[
    list[str],
    typer.Option(
        "--node",
        metavar="HOST:PORT",
        envvar="SPARK_CAS_KV_NODES",
        help="A node. Repeat the option for more nodes; the client tries them in turn.",
    ),
]
Seconds = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0.001, help="The timeout of the whole command.")
]
Version = Annotated[
    int | None, typer.Option("--version", min=0, metavar="VERSION", help="The expected version of the key.")
]
AbsentOnly = Annotated[bool, typer.Option("--absent", help="Expect the key to be absent.")]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the program with ``argv``, by default with the arguments of this process.

    If spark_cas raises an error, the program prints the message and ends with an exit code.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        # A key may have characters that the terminal cannot encode.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app(argv)
    except ConditionalLogError as error:
        fail(error)


app.command()(serve)


@app.command()
def get(
    key: Key,
    *,
    node: Nodes,
    stale: Annotated[
        bool,
        typer.Option(
            "--stale", help="Read from any node at once; the value may be older than the last acknowledged one."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object with value and version.")] = False,
    timeout: Seconds = REQUEST_SECONDS,
) -> None:
    """Show the value of a key, as raw bytes. If the key is absent, the exit code is 3."""
    with _client(node) as client:
        result = client.get(os.fsencode(key), stale=stale, timeout=timeout)
    if as_json:
        typer.echo(json.dumps({"value": json_of(result.value), "version": result.version}))
    elif result.value is not None:
        sys.stdout.flush()
        sys.stdout.buffer.write(result.value)
        sys.stdout.buffer.flush()
    if result.value is None:
        if not as_json:
            typer.echo("the key is absent", err=True)
        raise typer.Exit(ExitCode.REFUSED)


@app.command()
def put(key: Key, value: Value, *, node: Nodes, timeout: Seconds = REQUEST_SECONDS) -> None:
    """Set a key unconditionally, and show its new version."""
    with _client(node) as client:
        typer.echo(client.put(os.fsencode(key), _value(value), timeout=timeout))


@app.command()
def cas(
    key: Key,
    value: Value,
    *,
    node: Nodes,
    version: Version = None,
    absent: AbsentOnly = False,
    timeout: Seconds = REQUEST_SECONDS,
) -> None:
    """Set a key if it has the version of --version, or is absent with --absent, and show its new version.

    If the key has another version, nothing is written, and the exit code is 3.
    """
    if (version is None) != absent:
        raise typer.BadParameter("expected one of --version and --absent", param_hint="--version")
    with _client(node) as client:
        typer.echo(client.put(os.fsencode(key), _value(value), expected_version=version, timeout=timeout))


@app.command()
def delete(key: Key, *, node: Nodes, version: Version = None, timeout: Seconds = REQUEST_SECONDS) -> None:
    """Remove a key, with --version only if it has that version, and show the offset of the deletion."""
    expected: Expected = ANY if version is None else version
    with _client(node) as client:
        typer.echo(client.delete(os.fsencode(key), expected_version=expected, timeout=timeout))


@contextmanager
def _client(nodes: list[str]) -> Iterator[Client]:
    """Provide the client of a command. An error ends the command with its exit code."""
    try:
        yield Client(nodes)
    except UnknownOutcomeError as error:
        fail(error, UNKNOWN_OUTCOME)
    except ConditionalLogError:
        raise
    except ValueError as error:
        fail(error, ExitCode.USAGE)


def _value(text: str) -> bytes:
    return sys.stdin.buffer.read() if text == "-" else os.fsencode(text)
