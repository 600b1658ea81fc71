"""Kafka's frames: a length, then a header of which the proxy parses only the first fields."""

import asyncio
import struct
from dataclasses import dataclass
from enum import IntEnum

_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">ihhih")  # length, api key, api version, correlation id, length of the client id
_RESPONSE = struct.Struct(">ii")  # length, correlation id
_NOBODY = struct.pack(">i", -1)
_ERROR = struct.Struct(">h")
_PRODUCED = struct.Struct(">ihq")  # partition, error code, base offset
_FLEXIBLE_PRODUCE, _PRODUCE_BY_ID = 9, 13
_FLEXIBLE_METADATA = 9
_FLEXIBLE_END_TXN = 3
_MAX_BYTES = 1 << 28
"""The limit of a frame. Tests send no larger one, so a larger length means another protocol, for example TLS."""


class Api(IntEnum):
    """The APIs of the requests that faults apply to. Other requests have their plain number as the API."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32


@dataclass(frozen=True, slots=True)
class Request:
    """A request. ``frame`` holds all of it, including its length."""

    api: int
    version: int
    correlation_id: int
    client_id: str
    frame: bytes

    @property
    def question(self) -> bytes:
        """The content without correlation id and client id. It is equal for equal requests of different clients."""
        return self.frame[4:8] + self.frame[_REQUEST.size + len(self.client_id.encode()) :]


def parse_request(frame: bytes) -> Request:
    """Parse the fields with which every version of every request begins."""
    _, api, version, correlation_id, client_length = _REQUEST.unpack_from(frame)
    start = _REQUEST.size
    client_id = frame[start : start + max(client_length, 0)].decode()
    return Request(api, version, correlation_id, client_id, frame)


def correlation_id_of(response: bytes) -> int:
    """Return the correlation id of a response, which is that of its request on the connection."""
    return int(_RESPONSE.unpack_from(response)[1])


def without_correlation_id(response: bytes) -> bytes:
    """Return the content of a response, without its length and correlation id."""
    return response[_RESPONSE.size :]


def in_answer_to(said: bytes, response: bytes) -> bytes:
    """Return the content of the response ``said`` with the correlation id of ``response``."""
    return said[: _LENGTH.size] + response[_LENGTH.size : _RESPONSE.size] + without_correlation_id(said)


def fail_produce(response: bytes, version: int, error: int) -> bytes:
    """Return the response to a Produce request for one partition, with an error code instead of the offset."""
    at = _RESPONSE.size
    if version >= _FLEXIBLE_PRODUCE:
        # Tagged fields, one topic with its id or its name after a length of one byte, one partition.
        at += 2 + (response[at + 2] if version < _PRODUCE_BY_ID else 16) + 1
    else:
        at += 4 + 2 + int.from_bytes(response[at + 4 : at + 6]) + 4
    failed = bytearray(response)
    _PRODUCED.pack_into(failed, at, 0, error, -1)
    return bytes(failed)


def fail_end_txn(response: bytes, version: int, error: int) -> bytes:
    """Return the response to an EndTxn request with this error code."""
    failed = bytearray(response)
    _ERROR.pack_into(failed, end_txn_error_at(version), error)
    return bytes(failed)


def end_txn_error_at(version: int) -> int:
    """Return the position of the error code in the response to an EndTxn request."""
    # Empty tagged fields, throttle time.
    return _RESPONSE.size + (1 if version >= _FLEXIBLE_END_TXN else 0) + 4


def empty_metadata(response: bytes, version: int) -> bytes:
    """Return the response to a Metadata request without brokers, as from a fenced broker that knows no other one."""
    if version < _FLEXIBLE_METADATA:
        raise ValueError(f"Metadata of version {version}: only flexible versions are known here")
    begin = _RESPONSE.size + 1 + 4  # tagged fields, throttle time
    count, at = response[begin] - 1, begin + 1
    for _ in range(count):
        at += 4  # the node's id
        at += max(response[at], 1)  # its host, after a length that is one too large
        at += 4  # its port
        at += max(response[at], 1)  # its rack
        at += 1  # tagged fields
    at_controller = at + max(response[at], 1)
    without = (
        response[_LENGTH.size : begin]
        + b"\x01"
        + response[at:at_controller]
        + _NOBODY
        + response[at_controller + 4 :]
    )
    return _LENGTH.pack(len(without)) + without


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """Read a complete frame. Return None if the other side has closed the connection, even within a frame."""
    try:
        prefix = await reader.readexactly(_LENGTH.size)
        (size,) = _LENGTH.unpack(prefix)
        if not 0 < size < _MAX_BYTES:
            raise ValueError(f"a frame of {size} bytes: this is not Kafka's protocol")
        return prefix + await reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
