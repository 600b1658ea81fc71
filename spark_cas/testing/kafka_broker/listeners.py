"""The addresses of a node, and its server properties."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_cas.testing.ports import HOST

CONTROLLER = "CONTROLLER"
BROKER = "BROKER"
PROXIED = "PROXIED"


@dataclass(frozen=True, slots=True)
class Listener:
    """One address of a node. A secured one is one more of these, with its protocol and its own settings."""

    name: str
    port: int
    advertised_port: int
    """What clients are told to connect to: another port than ``port`` where a proxy stands between."""
    protocol: str = "PLAINTEXT"


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
