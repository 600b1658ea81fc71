"""The addresses of a node, and its server properties."""

import random
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

HOST = "127.0.0.1"
CONTROLLER = "CONTROLLER"
BROKER = "BROKER"
PROXIED = "PROXIED"

# Below the ports that systems give to outgoing connections (Linux from 32768, others from 49152): a port found free
# is then not taken by chance before the broker has it, or while the broker is down.
_PORTS = range(20_000, 32_000)
_TRIES = 200


@dataclass(frozen=True, slots=True)
class Listener:
    """One address of a node. A secured one is one more of these, with its protocol and its own settings."""

    name: str
    port: int
    advertised_port: int
    """What clients are told to connect to: another port than ``port`` where a proxy stands between."""
    protocol: str = "PLAINTEXT"


def free_ports(count: int, promised: Collection[int] = ()) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on, and that are not promised to somebody who will."""
    ports: set[int] = set()
    for _ in range(_TRIES):
        if len(ports) == count:
            return list(ports)
        port = random.choice(_PORTS)  # noqa: S311 - chance, not secrecy
        if port not in promised and _is_free(port):
            ports.add(port)
    raise OSError(f"no {count} free ports found on {HOST}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As Java does: a port whose last connections are still being closed down counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def listener_settings(listeners: Sequence[Listener]) -> dict[str, str]:
    """The settings that make a broker listen; clients are told of all but the controller's."""
    return {
        "listeners": ",".join(f"{each.name}://{HOST}:{each.port}" for each in listeners),
        "advertised.listeners": ",".join(
            f"{each.name}://{HOST}:{each.advertised_port}" for each in listeners if each.name != CONTROLLER
        ),
        "listener.security.protocol.map": ",".join(f"{each.name}:{each.protocol}" for each in listeners),
        "controller.listener.names": CONTROLLER,
        "inter.broker.listener.name": BROKER,
    }


def properties(settings: Mapping[str, str]) -> str:
    """Settings as the text of a Java properties file."""
    return "".join(f"{name}={escaped(value)}\n" for name, value in settings.items())


def escaped(value: str) -> str:
    """A value as a Java properties file writes it."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")
