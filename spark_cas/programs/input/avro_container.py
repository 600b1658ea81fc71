"""Strict reader of Avro container files. Any byte that violates the format is an error."""

import bz2
import json
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Protocol

import pyarrow as pa

from spark_cas.core.errors import UnreadableInputError
from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.avro_schema import Record
from spark_cas.programs.input.parts import Part

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_MOST_ROWS = 10_000
_BATCH_BYTES = 8 << 20
_MOST_RECORD_BYTES = 1 << 30
"""Maximum size of a record in bytes. Arrow stores at most 2 GiB of text in a column of a batch."""
_CRC_BYTES = 4
_MOST_SNAPPY_RATIO = 32
"""Maximum compression ratio of snappy, which encodes at most 64 bytes in 3. Without this check, a wrong length field
would allocate gigabytes."""
_FIX = "Write the file again, or remove it from the input"
_INVALID = (EOFError, IndexError, ValueError, OverflowError, pa.ArrowException)
"""Exceptions of fastavro and Arrow for bytes that do not match the schema."""


@dataclass(frozen=True, slots=True)
class Header:
    """Header of an Avro file."""

    schema: str
    codec: str
    sync: bytes
    size: int
    """Size of the header in bytes."""


def require_fastavro() -> None:
    """Raise UsageError if fastavro is not installed."""
    try:
        import fastavro  # noqa: F401
    except ImportError as error:
        raise UsageError(
            '--format avro needs the package fastavro. Nothing was appended. Run: pip install "spark-cas[avro]"'
        ) from error


def read_header(part: Part, data: bytes) -> Header:
    """Return the header of a file from its first bytes. Raises UnreadableInputError."""
    from fastavro import schemaless_reader

    if not data:
        raise part.error("the file has 0 bytes, so it is no Avro file", _FIX)
    if not data.startswith(_MAGIC):
        raise part.error("the file is not an Avro file: it does not begin with the bytes Obj 01", _FIX)
    content = BytesIO(data)
    content.seek(len(_MAGIC))
    try:
        # Decode pairs, because fastavro keeps only the last of two entries with the same key.
        pair = {"type": "record", "name": "pair", "fields": [_field("key", "string"), _field("value", "bytes")]}
        pairs: Any = schemaless_reader(content, {"type": "array", "items": pair}, None)
        entries = {each["key"]: each["value"] for each in pairs}
        schema = entries["avro.schema"].decode()
        codec = entries.get("avro.codec", b"null").decode()
    except KeyError as error:
        raise part.error("the header of the Avro file has no schema", _FIX) from error
    except _INVALID as error:
        raise part.error("the header of the Avro file is cut or invalid", _FIX) from error
    sync = content.read(_SYNC_BYTES)
    if len(sync) < _SYNC_BYTES or len(entries) < len(pairs):
        raise part.error("the header of the Avro file is cut or invalid", _FIX)
    if codec not in _CODECS:
        known = ", ".join(_CODECS)
        raise part.error(
            f"the Avro file has the codec {codec!r}, and a load reads {known}", "Write it with one of these"
        )
    return Header(schema, codec, sync, content.tell())


def read_records(part: Part, data: bytes, header: Header, record: Record) -> Iterator[pa.Array]:
    """Return the records of a file as decoded by `Record.raw`, in bounded arrays. Raises UnreadableInputError."""
    from fastavro import parse_schema, schemaless_reader

    # Parse a copy, because fastavro marks a schema that it has parsed.
    schema = parse_schema(json.loads(json.dumps(record.raw)))
    rows: list[Any] = []
    size = total = 0
    for number, (count, block) in enumerate(_blocks(part, data, header), 1):
        content = BytesIO(block)
        for _ in range(count):
            begin = content.tell()
            try:
                rows.append(schemaless_reader(content, schema, None))
            except _INVALID as error:
                raise part.error(
                    f"record {total + len(rows) + 1} in block {number} of the Avro file is cut or invalid", _FIX
                ) from error
            length = content.tell() - begin
            if length > _MOST_RECORD_BYTES:
                raise part.error(f"an Avro record has {length} bytes, and a load reads up to 1 GiB", "Split it")
            size += length
            if len(rows) >= _MOST_ROWS or size >= _BATCH_BYTES:
                yield _decoded(part, rows, record, total)
                total += len(rows)
                rows, size = [], 0
        if content.tell() != len(block):
            raise part.error(
                f"block {number} of the Avro file has {len(block) - content.tell()} bytes after its last record", _FIX
            )
    if rows:
        yield _decoded(part, rows, record, total)


def invalid_values(part: Part, first: int, count: int, error: Exception) -> UnreadableInputError:
    """Return an error for records with values that their type does not permit. Records count from 0 in a file."""
    return part.error(f"records {first + 1} to {first + count} of the Avro file: {error}", _FIX)


def _decoded(part: Part, rows: list[Any], record: Record, first: int) -> pa.Array:
    try:
        return pa.array(rows, record.decoded)
    except _INVALID as error:
        raise invalid_values(part, first, len(rows), error) from error


def _field(name: str, kind: str) -> dict[str, str]:
    return {"name": name, "type": kind}


def _blocks(part: Part, data: bytes, header: Header) -> Iterator[tuple[int, bytes]]:
    """Return the record count and the decompressed bytes of each block."""
    from fastavro import schemaless_reader

    content = BytesIO(data)
    content.seek(header.size)
    number = 0
    while content.tell() < len(data):
        number += 1
        try:
            count: Any = schemaless_reader(content, "long", None)
            size: Any = schemaless_reader(content, "long", None)
        except _INVALID as error:
            raise part.error(f"the Avro file is cut in the head of block {number}", _FIX) from error
        if count < 0 or size < 0:
            raise part.error(f"block {number} of the Avro file has a negative size", _FIX)
        stored = content.read(size)
        sync = content.read(_SYNC_BYTES)
        if len(stored) < size or len(sync) < _SYNC_BYTES:
            raise part.error(f"the Avro file is cut in block {number}", _FIX)
        if sync != header.sync:
            raise part.error(f"the Avro file is corrupt: block {number} ends without the sync marker", _FIX)
        try:
            block = _CODECS[header.codec](stored)
        except (*_INVALID, OSError, zlib.error, lzma.LZMAError) as error:
            raise part.error(f"block {number} of the Avro file is no valid {header.codec} data", _FIX) from error
        yield count, block


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


def _decompressed(decompressor: _Decompressor, stored: bytes) -> bytes:
    """Decompress one whole stream. Raises ValueError if it is cut, or if bytes follow it.

    After deflate data, fastavro and Avro's Python library leave the first bytes of the checksum that zlib adds.
    """
    block = decompressor.decompress(stored)
    if not decompressor.eof or not zlib.adler32(block).to_bytes(4, "big").startswith(decompressor.unused_data):
        raise ValueError("the compressed data is cut, or bytes follow it")
    return block


def _snappy(stored: bytes) -> bytes:
    """Decompress a block that ends with the checksum of its bytes."""
    size = 0
    for at, byte in enumerate(stored[:5]):  # snappy data begins with the length, 7 bits a byte
        size |= (byte & 0x7F) << (7 * at)
        if byte < 0x80:  # noqa: PLR2004 - the last byte of the length
            break
    if size > len(stored) * _MOST_SNAPPY_RATIO:
        raise ValueError("the length is wrong")
    block: bytes = pa.decompress(stored[:-_CRC_BYTES], decompressed_size=size, codec="snappy", asbytes=True)
    if zlib.crc32(block) != int.from_bytes(stored[-_CRC_BYTES:], "big"):
        raise ValueError("the checksum differs")
    return block


def _zstandard(stored: bytes) -> bytes:
    block: bytes = pa.CompressedInputStream(pa.BufferReader(stored), "zstd").read()
    return block


_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": lambda stored: _decompressed(zlib.decompressobj(-zlib.MAX_WBITS), stored),
    "snappy": _snappy,
    "zstandard": _zstandard,
    "bzip2": lambda stored: _decompressed(bz2.BZ2Decompressor(), stored),
    "xz": lambda stored: _decompressed(lzma.LZMADecompressor(), stored),
}
