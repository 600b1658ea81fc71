"""Format a record: as columns, as JSON, or by a format string of kcat."""

import base64
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_cas.core.offsets import OffsetRange
from spark_cas.core.records import readable
from spark_cas.log.backend import Backend
from spark_cas.log.clock import time_text

_COLUMNS = ("key", "value", "timestamp", "headers")
_UNREADABLE = "<unreadable headers>"
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029]")
"""Control characters and line separators that JSON does not escape."""
_KCAT_PART = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{2}|.)|([^%\\]+)|\\$", re.DOTALL)
_KCAT_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_NULL = b"NULL"


@dataclass(frozen=True, slots=True)
class Record:
    """A record and its position."""

    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] | None
    """None if the headers cannot be read, because a key is not text."""


RecordText = Callable[[Record], str | bytes]
"""Type of functions that format a record: as a line of text without its end, or as bytes."""


def records_in(
    log: Backend, partition: int, offsets: OffsetRange, key: bytes | None, headers: frozenset[tuple[str, bytes]]
) -> Iterator[Record]:
    """Yield the records of a range that have a key, unless it is None, and all of these headers.

    If the headers of a record cannot be read, they are None.
    """
    for base_offset, every in log.read_leniently(partition, offsets, _COLUMNS):
        positions, batch = np.arange(every.num_rows), every
        if key is not None:
            mask = pc.fill_null(pc.equal(every.column("key"), pa.scalar(key, pa.binary())), fill_value=False)
            positions = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
            batch = every.filter(mask)
        # As integers, because Python's datetime ends with the year 9999.
        times = batch.column("timestamp").cast(pa.int64()).to_pylist()
        rows = batch.drop_columns(["timestamp"]).to_pylist()
        for at, time_ms, row in zip(positions.tolist(), times, rows, strict=True):
            own = None
            if "headers" in row:
                own = tuple((each["key"], each["value"]) for each in row["headers"] or ())
            if not headers or headers <= {*(own or ())}:
                yield Record(partition, base_offset + at, time_ms, row["key"], row["value"], own)


def as_columns(record: Record) -> str:
    """Return partition, offset, time, key, value and headers, separated by tabs. Unprintable text is escaped."""
    headers = [_UNREADABLE]
    if record.headers is not None:
        headers = [f"{readable(name.encode())}={readable(value)}" for name, value in record.headers]
    time = "no time" if record.timestamp_ms is None else time_text(record.timestamp_ms)
    columns = (record.partition, record.offset, time)
    return "\t".join([*map(str, columns), readable(record.key), readable(record.value), *headers])


def as_json(record: Record, *, is_json: bool = False) -> str:
    """Return a JSON object. Bytes that are not UTF-8 are ``{"base64": "..."}``. Unreadable headers are null.

    With ``is_json``, the value of the record is the text of a JSON value, which becomes a part of the object.
    """
    headers = None
    if record.headers is not None:
        headers = [{"key": name, "value": json_of(value)} for name, value in record.headers]
    value = record.value.decode() if is_json and record.value is not None else json_line(json_of(record.value))
    fields = {
        "partition": json_line(record.partition),
        "offset": json_line(record.offset),
        "timestamp_ms": json_line(record.timestamp_ms),
        "key": json_line(json_of(record.key)),
        "value": value,
        "headers": json_line(headers),
    }
    return "{" + ", ".join(f'"{name}": {text}' for name, text in fields.items()) + "}"


def json_line(value: object) -> str:
    """Return a value as one line of JSON. Letters of all languages stay as they are."""
    return one_line(json.dumps(value, ensure_ascii=False))


def one_line(text: str) -> str:
    """Return a text of JSON without characters that end a line or control a terminal."""
    return _UNSAFE.sub(lambda each: f"\\u{ord(each[0]):04x}", text)


def json_of(value: bytes | None) -> str | dict[str, str] | None:
    """Return bytes as text or, if they are not UTF-8, as ``{"base64": "..."}``."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def parse_format(text: str, topic: str) -> Callable[[Record], bytes]:
    """Return a function that formats a record as kcat does, without a line break at the end.

    Args:
        text: The format string.
        topic: The name of the log, for ``%t``.

    Raises:
        ValueError: The text has an unknown format or escape. The message lists the known formats.
    """
    fields = _fields_of(topic)
    parts: list[Callable[[Record], bytes]] = []
    for match in _KCAT_PART.finditer(text):
        name, escape, literal = match.groups()
        if name == "%":
            parts.append(_constant(b"%"))
        elif name is not None:
            if name not in fields:
                raise ValueError(f"a format with {', '.join(f'%{each}' for each in fields)} and %%")
            parts.append(fields[name])
        elif literal is not None:
            parts.append(_constant(literal.encode("utf-8", "surrogateescape")))
        elif escape in _KCAT_ESCAPES:
            parts.append(_constant(_KCAT_ESCAPES[escape]))
        elif escape is not None and len(escape) > 1:
            parts.append(_constant(bytes.fromhex(escape[1:])))
        else:
            raise ValueError(r"a format whose escapes are \n, \r, \t, \0, \xNN and \\")
    return lambda record: b"".join(part(record) for part in parts)


def _constant(value: bytes) -> Callable[[Record], bytes]:
    return lambda _: value


def _fields_of(topic: str) -> dict[str, Callable[[Record], bytes]]:
    return {
        "t": _constant(topic.encode()),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "k": lambda record: record.key or b"",
        "K": lambda record: b"%d" % _size(record.key),
        "s": lambda record: record.value or b"",
        "S": lambda record: b"%d" % _size(record.value),
        "T": lambda record: b"%d" % (-1 if record.timestamp_ms is None else record.timestamp_ms),
        "h": _headers,
    }


def _size(value: bytes | None) -> int:
    return -1 if value is None else len(value)


def _headers(record: Record) -> bytes:
    entries = record.headers or ()
    return b",".join(name.encode() + b"=" + (_NULL if value is None else value) for name, value in entries)
