"""`serve`: run one node of the key-value store."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from key_value_store.http.wire import host_and_port
from spark_cas import open_log
from spark_cas.cli.opening import Address, LogOptions, Servers, Topic, naming, spec_of
from spark_cas.programs.exit_codes import ExitCode

_SWITCH_SECONDS = 0.001
"""The interval at which threads switch. With short intervals, concurrent writes wait less for each other."""


def serve(
    *,
    log: Address = None,
    bootstrap_servers: Servers = None,
    topic: Topic = None,
    folder: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the node keeps its state; of this node alone, and kept for it.")
    ],
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 is a free one.")] = (
        "127.0.0.1:8427"
    ),
    address: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where clients and other nodes reach it, if that is not --listen."),
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="Each node of the store, this one too or not; the same at each."),
    ] = None,
    shards: Annotated[
        int | None, typer.Option(min=1, help="Make the log with so many partitions, unless it is there.")
    ] = None,
    log_option: LogOptions = None,
) -> None:
    """Run a node of the store, with an HTTP API and a page for browsers. Ctrl-C or SIGTERM ends it cleanly.

    There is no authentication and no encryption: every client that can connect can read and write all keys. By
    default the node therefore accepts connections from this machine only.
    """
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        typer.echo(
            "error: the server needs more packages: pip install /path/to/the/clone/examples/key_value_store", err=True
        )
        raise typer.Exit(ExitCode.USAGE)
    from key_value_store.http.serve import serve as serve_node
    from key_value_store.http.serve import tcp_listener

    host, port = _parts(listen, "--listen")
    for each in [*(node or ()), *([address] if address else ())]:
        _parts(each, "--address, --node")
    spec = spec_of(log, bootstrap_servers, topic, log_option)
    with naming(spec):
        if shards is not None:
            with open_log(spec) as made:
                made.create(shards)
        try:
            listener = tcp_listener(host, port)
        except OSError as error:
            raise typer.BadParameter(f"cannot listen there: {error.strerror}", param_hint="--listen") from None
        shown = f"[{host}]" if ":" in host else host
        reached = address or f"{shown}:{listener.getsockname()[1]}"

        def ready(followed: int) -> None:
            typer.echo(f"node {reached} follows {followed} shards: http://{reached}/")

        sys.setswitchinterval(_SWITCH_SECONDS)
        with listener:
            serve_node(spec, listener, address=reached, folder=folder, nodes=node or (), ready=ready)


def _parts(address: str, option: str) -> tuple[str, int]:
    parts = host_and_port(address)
    if parts is None:
        raise typer.BadParameter("expected HOST:PORT", param_hint=option)
    return parts
