"""`serve`: run one node of the key-value store."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from key_value_store.http.wire import host_and_port
from spark_cas import open_log
from spark_cas.cli.opening import Address, LogOptions, Servers, Topic, naming, spec_of
from spark_cas.programs.errors import ExitCode

_SWITCH_SECONDS = 0.001
"""The switch interval of Python threads. With a short interval, concurrent writes wait less for each other."""


def serve(
    *,
    log: Address = None,
    bootstrap_servers: Servers = None,
    topic: Topic = None,
    folder: Annotated[
        Path,
        typer.Option(metavar="DIR", help="The folder for the node's state. Each node needs its own folder; keep it."),
    ],
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The address to listen on. Port 0 selects a free port.")
    ] = ("127.0.0.1:8427"),
    address: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="The address for clients and other nodes, if it is not --listen."),
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT", help="A node of the store. Repeat it for all nodes, with the same list at each node."
        ),
    ] = None,
    shards: Annotated[
        int | None, typer.Option(min=1, help="If the log does not exist, create it with this many partitions.")
    ] = None,
    log_option: LogOptions = None,
) -> None:
    """Run a node of the store, with an HTTP API and a page for browsers. Ctrl-C or SIGTERM ends it cleanly.

    There is no authentication and no encryption: every client that can connect can read and write all keys. By
    default the node therefore accepts connections from this machine only.
    """
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        typer.echo(
            "error: starlette or uvicorn is missing. Run: pip install /path/to/the/clone/examples/key_value_store",
            err=True,
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
            with open_log(spec) as created:
                created.create(shards)
        try:
            listener = tcp_listener(host, port)
        except OSError as error:
            raise typer.BadParameter(
                f"cannot listen on this address: {error.strerror}", param_hint="--listen"
            ) from None
        shown_host = f"[{host}]" if ":" in host else host
        node_address = address or f"{shown_host}:{listener.getsockname()[1]}"

        def ready(count: int) -> None:
            typer.echo(f"node {node_address} follows {count} shards: http://{node_address}/")

        sys.setswitchinterval(_SWITCH_SECONDS)
        with listener:
            serve_node(spec, listener, address=node_address, folder=folder, nodes=node or (), ready=ready)


def _parts(address: str, option: str) -> tuple[str, int]:
    parts = host_and_port(address)
    if parts is None:
        raise typer.BadParameter("expected HOST:PORT", param_hint=option)
    return parts
