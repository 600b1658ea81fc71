"""Listeners of a node, and its server properties."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tools.ports import HOST

CONTROLLER = "CONTROLLER"
BROKER = "BROKER"
PROXIED = "PROXIED"


@dataclass(frozen=True, slots=True)
class Listener:
    """One address of a node. A secured listener also has its protocol and its own settings."""

    name: str
    port: int
    advertised_port: int
    """Port that the broker advertises to clients. It differs from ``port`` if clients use a proxy."""
    protocol: str = "PLAINTEXT"


def listener_settings(listeners: Sequence[Listener]) -> dict[str, str]:
    """Return the broker settings for listeners. The broker advertises all except the controller's."""
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
    """Return settings as the text of a Java properties file."""
    return "".join(f"{name}={escaped(value)}\n" for name, value in settings.items())


def escaped(value: str) -> str:
    """Escape a value for a Java properties file."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")
