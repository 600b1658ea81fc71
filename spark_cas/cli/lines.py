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
from spark_cas.core.readable import readable
from spark_cas.log.backend import Backend
from spark_cas.log.clock import time_text

_COLUMNS = ("key", "value", "timestamp", "headers")
_UNREADABLE = "<unreadable headers>"
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029]")
"""Control characters and line separators that JSON does not escape."""


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


@dataclass(frozen=True, slots=True)
class Conditions:
    """The key and the headers of the records to show."""

    key: bytes | None = None
    """None selects all records, also those without a key."""
    headers: tuple[tuple[str, bytes], ...] = ()
    """A record needs all of these headers."""

    def include(self, record: Record) -> bool:
        """Return whether a record has these headers."""
        return not self.headers or {*self.headers} <= {*(record.headers or ())}


def records_in(
    log: Backend, partition: int, offsets: OffsetRange, conditions: Conditions = Conditions()
) -> Iterator[Record]:
    """Yield the records of a range that meet conditions. If the headers of a record cannot be read, they are None."""
    return filter(conditions.include, _records_with_key(log, partition, offsets, conditions.key))


def _records_with_key(log: Backend, partition: int, offsets: OffsetRange, key: bytes | None) -> Iterator[Record]:
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
            headers = None
            if "headers" in row:
                headers = tuple((each["key"], each["value"]) for each in row["headers"] or ())
            yield Record(partition, base_offset + at, time_ms, row["key"], row["value"], headers)


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
