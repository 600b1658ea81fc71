"""Format a record as a line: as columns or as JSON."""

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from spark_cas.core.offsets import OffsetRange
from spark_cas.core.readable import readable
from spark_cas.log.clock import time_text
from spark_cas.log.lenient_reading import read_leniently
from spark_cas.log.protocol import Log

_COLUMNS = ("key", "value", "timestamp", "headers")
_UNREADABLE = "<unreadable headers>"


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


RecordText = Callable[[Record], str]
"""Type of functions that format a record as a line."""


def records_in(log: Log, partition: int, offsets: OffsetRange) -> Iterator[Record]:
    """Yield the records of a range. If the headers of a record cannot be read, they are None."""
    for base_offset, batch in read_leniently(log, partition, offsets, _COLUMNS):
        # As integers, because Python's datetime ends with the year 9999.
        times = batch.column("timestamp").cast(pa.int64()).to_pylist()
        rows = batch.drop_columns(["timestamp"]).to_pylist()
        for at, (time_ms, row) in enumerate(zip(times, rows, strict=True)):
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


def as_json(record: Record) -> str:
    """Return a JSON object. Bytes that are not UTF-8 are ``{"base64": "..."}``. Unreadable headers are null."""
    headers = None
    if record.headers is not None:
        headers = [{"key": name, "value": json_of(value)} for name, value in record.headers]
    return json.dumps(
        {
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "key": json_of(record.key),
            "value": json_of(record.value),
            "headers": headers,
        }
    )


def json_of(value: bytes | None) -> str | dict[str, str] | None:
    """Return bytes as text or, if they are not UTF-8, as ``{"base64": "..."}``."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
