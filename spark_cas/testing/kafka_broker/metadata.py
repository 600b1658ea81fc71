"""One request of Kafka's protocol, by hand: what one broker knows of its cluster.

A client library would do, but only the Kafka backend may know one. And librdkafka (2.16) lets go of the address that
it was given once it has heard of the brokers, and asks any of them.
"""

import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

_METADATA, _VERSION = 3, 1
_CLIENT = b"spark_cas"
_ALL_TOPICS = -1
_REQUEST = struct.pack(f">hhih{len(_CLIENT)}si", _METADATA, _VERSION, 0, len(_CLIENT), _CLIENT, _ALL_TOPICS)

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class KnownPartition:
    """A partition as one broker knows it. Nodes are told by their ids."""

    leader: int
    """-1 while it has none."""
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """What one broker knows: nothing while it does not answer."""

    alive: frozenset[int] = frozenset()
    """The ids of the nodes that are registered and not fenced."""
    topics: Mapping[str, Mapping[int, KnownPartition]] = field(default_factory=dict)
    """Partitions of topics."""


def known_to(port: int, timeout_seconds: float) -> Known:
    """What the broker at this port knows."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_seconds) as connection:
            connection.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
            (size,) = struct.unpack(">i", _exactly(connection, 4))
            return _Response(_exactly(connection, size)).known()
    except OSError:
        return Known()


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("closed within a response")
        data += more
    return data


class _Response:
    """A response of this version, read from its start to its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def known(self) -> Known:
        self._take(">i")  # whose answer it is
        nodes = self._each(self._node)
        self._take(">i")  # the controller
        return Known(frozenset(nodes), dict(self._each(self._topic)))

    def _node(self) -> int:
        node = self._number()
        self._text()  # the host
        self._take(">i")  # the port
        self._text()  # the rack
        return node

    def _topic(self) -> tuple[str, dict[int, KnownPartition]]:
        self._take(">h")  # an error
        name = self._text()
        self._take(">?")  # whether it is internal
        return name, dict(self._each(self._partition))

    def _partition(self) -> tuple[int, KnownPartition]:
        self._take(">h")  # an error
        number, leader = self._number(), self._number()
        found = KnownPartition(leader, tuple(self._each(self._number)))
        self._each(self._number)  # who is in sync
        return number, found

    def _each(self, item: Callable[[], _Item]) -> list[_Item]:
        return [item() for _ in range(self._number())]

    def _number(self) -> int:
        return self._take(">i")

    def _text(self) -> str:
        length = max(0, self._take(">h"))
        self._at += length
        return self._data[self._at - length : self._at].decode()

    def _take(self, layout: str) -> int:
        (found,) = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return int(found)
