"""One request of Kafka's protocol, by hand: which nodes a broker knows to be alive.

A client library would do, but only the Kafka backend may know one.
"""

import socket
import struct

_METADATA, _VERSION = 3, 1
_CLIENT = b"spark_cas"
_NO_TOPICS = 0
_REQUEST = struct.pack(f">hhih{len(_CLIENT)}si", _METADATA, _VERSION, 0, len(_CLIENT), _CLIENT, _NO_TOPICS)


def nodes_alive(port: int, timeout_seconds: float) -> frozenset[int]:
    """The ids of the nodes that are registered and not fenced; none while the broker does not answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_seconds) as connection:
            connection.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
            (size,) = struct.unpack(">i", _exactly(connection, 4))
            return frozenset(_node_ids(_exactly(connection, size)))
    except OSError:
        return frozenset()


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("closed within a response")
        data += more
    return data


def _node_ids(response: bytes) -> list[int]:
    _correlation, count = struct.unpack_from(">ii", response)
    ids, at = [], 8
    for _ in range(count):
        node, host_length = struct.unpack_from(">ih", response, at)
        at += 6 + host_length + 4  # the port
        (rack_length,) = struct.unpack_from(">h", response, at)
        at += 2 + max(rack_length, 0)
        ids.append(node)
    return ids
