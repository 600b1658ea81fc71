"""`serve`: run one node of the key-value store."""

import argparse
import ipaddress
import ssl
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from key_value_store.http.access import Access, server_context
from key_value_store.http.wire import host_and_port
from spark_cas import ConditionalLogError, open_log
from spark_cas.cli.command_line import CommandLine, add_log, whole_number
from spark_cas.cli.opening import naming, read_options
from spark_cas.log.open import AnySpec
from spark_cas.programs.errors import ExitCode, UsageError

_SWITCH_SECONDS = 0.001
"""The switch interval of Python threads. With a short interval, concurrent writes wait less for each other."""


def add_serve(program: CommandLine) -> None:
    """Add the command `serve`."""
    command = program.add_command(
        "serve",
        "Run a node of the store, with an HTTP API and a page for browsers. Ctrl-C or SIGTERM ends it cleanly. "
        "Without --token-file there is no authentication: every client that can connect can read and write all keys. "
        "By default the node therefore accepts connections from this machine only.",
    )
    add_log(command)
    command.add_argument(
        "--folder",
        type=Path,
        required=True,
        metavar="DIR",
        help="the folder for the node's state; each node needs its own folder; keep it",
    )
    command.add_argument(
        "--listen",
        default="127.0.0.1:8427",
        metavar="HOST:PORT",
        help="the address to listen on; port 0 selects a free port; default: 127.0.0.1:8427",
    )
    command.add_argument(
        "--address", metavar="HOST:PORT", help="the address for clients and other nodes, if it is not --listen"
    )
    command.add_argument(
        "--node",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="a node of the store; repeat it for all nodes, with the same list at each node",
    )
    command.add_argument(
        "--shards",
        type=whole_number,
        metavar="N",
        help="if the log does not exist, create it with this number of partitions",
    )

    add_access(command)
    command.add_argument("--tls-certificate", type=Path, metavar="FILE", help="serve with TLS and this certificate")
    command.add_argument("--tls-key", type=Path, metavar="FILE", help="the private key of --tls-certificate, in PEM")


def add_access(command: argparse.ArgumentParser) -> None:
    """Add the arguments for the access to nodes."""
    command.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="a file with the token that all nodes and clients share; each request needs it",
    )
    command.add_argument(
        "--tls-ca",
        type=Path,
        metavar="FILE",
        help="connect to nodes with TLS, and verify their certificates with the CA certificates in this file",
    )


def serve(arguments: argparse.Namespace) -> None:
    """Run a node until a signal ends it."""
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        print(
            "error: starlette or uvicorn is missing. Run: pip install /path/to/the/clone/examples/key_value_store",
            file=sys.stderr,
        )
        sys.exit(ExitCode.USAGE)
    from key_value_store.http.serve import serve as serve_node
    from key_value_store.http.serve import tcp_listener

    host, port = _parts(arguments.listen, "--listen")
    for each in [*arguments.node, *([arguments.address] if arguments.address else ())]:
        _parts(each, "--address, --node")
    access, tls = _security(arguments)
    spec = read_options(arguments).selection.only()
    with naming(spec):
        if arguments.shards is not None:
            _create(spec, arguments.shards)
        try:
            listener = tcp_listener(host, port)
        except OSError as error:
            raise UsageError(f"--listen: cannot listen on this address: {error.strerror}") from None
        shown_host = f"[{host}]" if ":" in host else host
        node_address = arguments.address or f"{shown_host}:{listener.getsockname()[1]}"
        _warn_if_open(
            listener.getsockname()[0], {"--token-file": bool(access.token), "--tls-certificate": tls is not None}
        )

        def ready(count: int) -> None:
            scheme = "http" if tls is None else "https"
            print(f"node {node_address} follows {count} shards: {scheme}://{node_address}/", flush=True)

        sys.setswitchinterval(_SWITCH_SECONDS)
        with listener:
            serve_node(
                spec,
                listener,
                address=node_address,
                folder=arguments.folder,
                nodes=arguments.node,
                access=access,
                tls=tls,
                ready=ready,
            )


def _security(arguments: argparse.Namespace) -> tuple[Access, ssl.SSLContext | None]:
    """Return the access to other nodes, and the TLS settings of this one."""
    if len({each is None for each in (arguments.tls_certificate, arguments.tls_key, arguments.tls_ca)}) > 1:
        raise UsageError("--tls-certificate, --tls-key and --tls-ca belong together")
    try:
        access = Access.of_files(arguments.token_file, arguments.tls_ca)
        return access, access.tls and server_context(arguments.tls_certificate, arguments.tls_key)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _create(spec: AnySpec, shards: int) -> None:
    if shards == 0:
        raise UsageError("--shards: expected at least 1")
    try:
        with open_log(spec) as created:
            created.create(shards)
    except ConditionalLogError:
        raise
    except ValueError as error:
        raise UsageError(f"--shards: {error}") from None


def _warn_if_open(ip: str, protections: Mapping[str, bool]) -> None:
    """Warn if other machines can reach the IP address of a node that lacks a protection."""
    missing = [option for option, given in protections.items() if not given]
    if missing and not ipaddress.ip_address(ip).is_loopback:
        print(
            f"warning: the node accepts connections from other machines without {' and '.join(missing)}, so others "
            f"may read and write all keys.",
            file=sys.stderr,
            flush=True,
        )


def _parts(address: str, option: str) -> tuple[str, int]:
    parts = host_and_port(address)
    if parts is None:
        raise UsageError(f"{option}: expected HOST:PORT")
    return parts
