"""A broker and the proxy for it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kafka.proxy.server import Proxy
from tools.kafka_broker import KafkaBroker
from tools.ports import held_ports


@dataclass(frozen=True)
class Proxied:
    """One broker with two addresses."""

    broker: KafkaBroker
    proxy: Proxy

    @property
    def direct(self) -> str:
        """``bootstrap.servers`` without the proxy: for topics, for other writers, and to verify the log."""
        return self.broker.bootstrap

    @property
    def bootstrap(self) -> str:
        """``bootstrap.servers`` through the proxy."""
        return self.proxy.bootstrap


@contextmanager
def proxied_broker(conf: Path, settings: Mapping[str, str] | None = None) -> Iterator[Proxied]:
    """Start a broker, and a proxy that forwards everything until a test adds rules."""
    with (
        held_ports(1) as [port],
        KafkaBroker(conf, settings=settings, advertised_port=port) as broker,
        Proxy(port, broker.proxied_address) as proxy,
    ):
        yield Proxied(broker, proxy)
