"""Avro containers built byte by byte, without the library that the reader uses."""

import json
import zlib

MAGIC = b"Obj\x01"
SYNC = bytes(range(16))
ROW = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}]}


def number(value):
    """Encode an integer in Avro's zigzag encoding."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    result = bytearray()
    while rest > 127:
        result.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*result, rest])


def text(value):
    """Encode a string or bytes."""
    data = value.encode() if isinstance(value, str) else value
    return number(len(data)) + data


def header(schema, codec="null", **others):
    meta = {"avro.schema": schema if isinstance(schema, bytes) else json.dumps(schema), "avro.codec": codec, **others}
    return MAGIC + number(len(meta)) + b"".join(text(key) + text(value) for key, value in meta.items()) + b"\0" + SYNC


def block(count, data, sync=SYNC):
    return number(count) + text(data) + sync


def deflated(data):
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


def container(schema, *rows, **others):
    """Return a file with one block of rows that are already encoded."""
    return header(schema, **others) + block(len(rows), b"".join(rows))


def record(**fields):
    """Return the schema of a record with these fields."""
    return {
        "type": "record",
        "name": "Row",
        "fields": [{"name": name, "type": each} for name, each in fields.items()],
    }
