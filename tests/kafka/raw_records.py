"""Records that no client library writes: a Produce request with a record batch that this module encodes."""

import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.kafka.clients import SECONDS
from tests.kafka.proxy.frames import Api

_VERSION = 7
"""A version without tagged fields."""
_CLIENT_ID = "raw"
_BATCH_AFTER_CRC = struct.Struct(">hiqqqhii")
"""Attributes, last offset delta, first and largest timestamp, producer id, epoch, sequence, record count."""
_TRANSACTIONAL = 0x10
"""The attribute of a batch within a transaction."""
_NOT_LEADER = 6
_CASTAGNOLI = 0x82F63B78


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record as the broker stores it. Header keys are bytes and may be invalid UTF-8."""

    value: bytes | None = b"value"
    key: bytes | None = None
    headers: Sequence[tuple[bytes, bytes | None]] = ()
    timestamp_ms: int = 1_700_000_000_123


def append_raw(
    address: str,
    topic: str,
    *records: RawRecord,
    codec: int = 0,
    compress: Callable[[bytes], bytes] = bytes,
    open_for: int | None = None,
    epoch: int = 0,
) -> int:
    """Append records to partition 0 of a topic in one batch, and return the offset of the first.

    ``codec`` is Kafka's number for the compression format of ``compress``; 0 means no compression. With ``open_for``,
    the records are in an open transaction of the producer with that id and ``epoch``, which no coordinator knows. The
    broker accepts that only if ``transaction.partition.verification.enable`` is false.
    """
    batch = _batch(records, codec, compress, open_for, epoch)
    body = _text(None if open_for is None else "hanging") + struct.pack(">hi", -1, 1000 * SECONDS)
    body += struct.pack(">i", 1) + _text(topic) + struct.pack(">iii", 1, 0, len(batch)) + batch
    request = struct.pack(">hhi", Api.PRODUCE, _VERSION, 1) + _text(_CLIENT_ID) + body
    deadline = time.monotonic() + SECONDS
    while True:
        response = _response(address, request)
        # Correlation id, one topic with its name, one partition with its index.
        at = 4 + 4 + len(_text(topic)) + 4 + 4
        error, offset = struct.unpack_from(">hq", response, at)
        if error == 0:
            return int(offset)
        # A broker returns this error for a moment after it has created the topic.
        is_early = error == _NOT_LEADER and time.monotonic() < deadline
        assert is_early, f"the broker rejected the batch: error {error}"
        time.sleep(0.05)


def _response(address: str, request: bytes) -> bytes:
    """Send one request, and return the response without its length."""
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), SECONDS) as connection,
        connection.makefile("rb") as reader,
    ):
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", reader.read(4))
        return reader.read(size)


def _batch(
    records: Sequence[RawRecord], codec: int, compress: Callable[[bytes], bytes], open_for: int | None, epoch: int
) -> bytes:
    times = [each.timestamp_ms for each in records]
    payload = b"".join(_record(number, each, times[0]) for number, each in enumerate(records))
    attributes, producer = (
        (codec, (-1, -1, -1)) if open_for is None else (codec | _TRANSACTIONAL, (open_for, epoch, 0))
    )
    checked = _BATCH_AFTER_CRC.pack(attributes, len(records) - 1, times[0], max(times), *producer, len(records))
    checked += compress(payload)
    after_length = struct.pack(">ibI", -1, 2, crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(after_length)) + after_length


def _record(number: int, record: RawRecord, first_ms: int) -> bytes:
    body = b"\0" + varint(record.timestamp_ms - first_ms) + varint(number)
    body += _sized(record.key) + _sized(record.value) + varint(len(record.headers))
    body += b"".join(_sized(key) + _sized(value) for key, value in record.headers)
    return varint(len(body)) + body


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def varint(number: int) -> bytes:
    """Encode an integer as a zigzag varint, with seven bits in each byte."""
    remaining = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while remaining > 0x7F:
        encoded.append(0x80 | (remaining & 0x7F))
        remaining >>= 7
    return bytes([*encoded, remaining])


def _text(text: str | None) -> bytes:
    if text is None:
        return struct.pack(">h", -1)
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of some bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (_CASTAGNOLI if byte & 1 else 0)
    return byte


_TABLE = [_entry(byte) for byte in range(256)]
