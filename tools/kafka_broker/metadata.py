"""A metadata request of Kafka's protocol, which returns one broker's view of its cluster.

Only the Kafka backend may import a client library. Also, librdkafka (2.16) sends requests to any broker after it has
discovered the cluster, so it cannot query one specific broker.
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
    """A partition as one broker reports it. Nodes are given by their ids."""

    leader: int
    """Id of the leader; -1 if there is none."""
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """Cluster metadata of one broker; empty if the broker does not reply."""

    alive: frozenset[int] = frozenset()
    """Ids of the nodes that are registered and not fenced."""
    topics: Mapping[str, Mapping[int, KnownPartition]] = field(default_factory=dict)
    """Partitions by topic and number."""


def known_to(port: int, timeout_seconds: float) -> Known:
    """Return the metadata of the broker at this port; empty if it does not reply within the timeout."""
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
    """Sequential parser for a metadata response of this version."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def known(self) -> Known:
        self._take(">i")  # correlation id
        nodes = self._each(self._node)
        self._take(">i")  # controller id
        return Known(frozenset(nodes), dict(self._each(self._topic)))

    def _node(self) -> int:
        node = self._number()
        self._text()  # host
        self._take(">i")  # port
        self._text()  # rack
        return node

    def _topic(self) -> tuple[str, dict[int, KnownPartition]]:
        self._take(">h")  # error code
        name = self._text()
        self._take(">?")  # is_internal
        return name, dict(self._each(self._partition))

    def _partition(self) -> tuple[int, KnownPartition]:
        self._take(">h")  # error code
        number, leader = self._number(), self._number()
        found = KnownPartition(leader, tuple(self._each(self._number)))
        self._each(self._number)  # in-sync replicas
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
