"""`read`, `tail`: show the records of a log as columns, as JSON, or by a format string of kcat."""

import argparse
import base64
import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from datetime import time as time_of_day
from functools import partial
from io import TextIOWrapper
from itertools import islice
from math import isfinite

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_cas.cli.command_line import json_line, json_of, one_line
from spark_cas.cli.opening import naming, opened, read_options
from spark_cas.core.errors import TruncatedError, UnreadableRecordError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.records import readable
from spark_cas.log.backend import Backend
from spark_cas.log.clock import time_text
from spark_cas.log.open import open_log
from spark_cas.options.read_range import TopicPartition
from spark_cas.programs.arguments import registry_settings
from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.json_documents import compact, parse_line

_POLL_SECONDS = 0.5
_WIDER = 4
"""If the last offsets have too few records, the searched range grows by this factor."""
_COLUMNS = ("key", "value", "timestamp", "headers")
_UNREADABLE = "<unreadable headers>"
_KCAT_FIELDS = b"tpokKsSTh"
_KCAT_PART = re.compile(rb"%(.?)|\\(x[0-9a-fA-F]{2}|.?)", re.DOTALL)
_KCAT_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"0": b"\0", b"\\": b"\\"}


@dataclass(frozen=True, slots=True)
class Record:
    """A record and its position."""

    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str | None, bytes | None], ...] | None
    """None if the headers cannot be read, because a key is not text. A key of a record in a directory may be null."""


RecordText = Callable[[Record], str | bytes]
"""Type of functions that format a record: as a line of text without its end, or as bytes."""
_Decode = Callable[[Record], Record]


def read(arguments: argparse.Namespace) -> None:
    """Show the records of each partition."""
    base, end = arguments.base_offset, arguments.end_offset
    ranged = base is None and end is None
    if arguments.partition is None and not ranged:
        raise UsageError("--from, --to: an offset belongs to a partition. Add --partition.")
    if arguments.since is not None and not ranged:
        raise UsageError("--since, --from, --to: a read has a time or offsets. Remove --since, or --from and --to.")
    options = read_options(arguments, ranged=ranged)
    spec = options.selection.only()
    with naming(spec), open_log(spec) as log:
        output = _Output(arguments, log)
        partitions = tuple(_partitions(log, arguments.partition))
        bounds = dict(zip(partitions, log.bounds_of(partitions, waiting=True), strict=True))
        if ranged:
            requested = options.range.resolve(
                {TopicPartition(log.topic, each): at for each, at in bounds.items()},
                lambda at, timestamp_ms: log.offset_since(at.partition, timestamp_ms),
            )
            ranges = {at.partition: offsets for at, offsets in requested.items()}
        else:
            ranges = {each: _between(each, at, base, end) for each, at in bounds.items()}
        records = (record for each, offsets in ranges.items() for record in output.records(each, offsets))
        output.show(islice(records, arguments.limit))


def tail(arguments: argparse.Namespace) -> None:
    """Show the newest records of each partition."""
    with opened(arguments) as log:
        output = _Output(arguments, log)
        log_id = log.layout().log_id
        ends: dict[int, int] = {}
        partitions = tuple(_partitions(log, arguments.partition))
        for each, bounds in zip(partitions, log.bounds_of(partitions, waiting=True), strict=True):
            output.show(_newest(each, bounds, arguments.count, output))
            ends[each] = bounds.end_offset
        while arguments.follow:
            time.sleep(_POLL_SECONDS)
            _show_more(log, log_id, arguments.partition, ends, output)


class _Output:
    """The records to show, and their format."""

    def __init__(self, arguments: argparse.Namespace, log: Backend) -> None:
        """Parse the arguments. Raises UsageError."""
        self._log = log
        # An argument that is not UTF-8 keeps its bytes.
        self._key = None if arguments.key is None else os.fsencode(arguments.key)
        self._headers = frozenset((name, os.fsencode(value)) for name, value in arguments.headers)
        self._as_text = _format_of(arguments, log)
        self._decode = _decoder_of(arguments)

    def records(self, partition: int, offsets: OffsetRange) -> Iterator[Record]:
        records = records_in(self._log, partition, offsets, self._key, self._headers)
        return records if self._decode is None else map(self._decode, records)

    def show(self, records: Iterable[Record]) -> None:
        for record in records:
            text = self._as_text(record)
            if isinstance(text, str):
                print(text)
            elif isinstance(sys.stdout, TextIOWrapper):
                sys.stdout.buffer.write(text)  # unchanged, as kcat does
            else:
                sys.stdout.write(text.decode("utf-8", "backslashreplace"))
        sys.stdout.flush()


def _format_of(arguments: argparse.Namespace, log: Backend) -> RecordText:
    if arguments.format is None:
        if arguments.json:
            return as_json if arguments.value_format == "text" else partial(as_json, is_json=True)
        return as_columns
    try:
        return parse_format(arguments.format, log.topic)
    except ValueError as expected:
        raise UsageError(f"--format: expected {expected}") from None


def _partitions(log: Backend, partition: int | None) -> Iterable[int]:
    layout = log.layout()
    if partition is None:
        return range(layout.partitions)
    try:
        layout.require(partition)
    except ValueError as error:
        raise UsageError(f"--partition: {error}") from None
    return (partition,)


def _between(partition: int, bounds: Bounds, base: int | None, end: int | None) -> OffsetRange:
    """Return the range between two offsets, by default the bounds of the partition.

    Raises UsageError if the partition does not have all of these offsets.
    """
    first = bounds.start_offset if base is None else base
    last = bounds.end_offset if end is None else end
    for argument, offset in (("--from", first), ("--to", last)):
        if not bounds.start_offset <= offset <= bounds.end_offset:
            raise UsageError(
                f"{argument} {offset}: partition {partition} starts at offset {bounds.start_offset} and ends at "
                f"{bounds.end_offset}"
            )
    if first > last:
        raise UsageError(f"--from {first}, --to {last}: the first offset is after the last one")
    return OffsetRange(first, last)


def _newest(partition: int, bounds: Bounds, count: int, output: _Output) -> Iterable[Record]:
    """Return the last records of a partition, in order."""
    width = count
    while True:
        base = max(bounds.start_offset, bounds.end_offset - width)
        offsets = OffsetRange(base, bounds.end_offset)
        records = deque(output.records(partition, offsets), maxlen=count)
        if len(records) == count or base == bounds.start_offset:
            return records
        width *= _WIDER


def _show_more(log: Backend, log_id: str, partition: int | None, ends: dict[int, int], output: _Output) -> None:
    """Show records that were committed since the offsets in ``ends``, and update these offsets.

    New partitions are shown from their start. Raises TruncatedError if the log was recreated or lost records.
    """
    if log.layout().log_id != log_id:
        raise TruncatedError(f"log {log.topic} was deleted and recreated. Run the command again to read the new one.")
    partitions = tuple(_partitions(log, partition))
    shown_ends = [ends.get(each, 0) for each in partitions]
    now = log.bounds_of(partitions, waiting=False, at_least=shown_ends)
    for each, shown_end, bounds in zip(partitions, shown_ends, now, strict=True):
        if bounds.end_offset < shown_end:
            raise TruncatedError(
                f"partition {each} of log {log.topic} ends at {bounds.end_offset}, and was shown up to {shown_end}: "
                f"the log lost records. Find the cause, then run the command again to show the remaining records."
            )
        if shown_end < bounds.start_offset:
            trimmed = f"offsets {shown_end} to {bounds.start_offset - 1} were trimmed before they were shown"
            print(f"partition {each}: {trimmed}", file=sys.stderr, flush=True)
        base = max(shown_end, bounds.start_offset)
        if base < bounds.end_offset:
            output.show(output.records(each, OffsetRange(base, bounds.end_offset)))
        ends[each] = bounds.end_offset


def _decoder_of(arguments: argparse.Namespace) -> _Decode | None:
    """Return a function that replaces the value of a record by its JSON; None for text.

    The function raises UnreadableRecordError, with the position of the record, if the value has another format. For
    Avro, both also raise the errors of a schema registry.

    Raises:
        UsageError: The arguments contradict each other.
    """
    settings = registry_settings(arguments, uses_avro=arguments.value_format == "avro")
    if arguments.value_format == "text":
        return None
    json_of_value = _avro_decoder(dict(settings)) if arguments.value_format == "avro" else _parsed_json

    def decode(record: Record) -> Record:
        if record.value is None:
            return record
        return replace(record, value=json_of_value(record, record.value).encode())

    return decode


def _avro_decoder(settings: dict[str, str]) -> Callable[[Record, bytes], str]:
    from spark_cas.core.errors import ConditionalLogError
    from spark_cas.log.schema_registry import SchemaRegistry, at_place

    registry = SchemaRegistry(settings)

    def decode(record: Record, value: bytes) -> str:
        try:
            return json_line(_plain(registry.decode(value, record.headers or ())))
        except ConditionalLogError as error:
            raise at_place(error, record.partition, record.offset) from error

    return decode


def _plain(value: object) -> object:
    """Return an Avro value as JSON can have it: bytes in base64, times in ISO 8601, NaN and others as text."""
    match value:
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case bytes():
            return base64.b64encode(value).decode()
        case date() | time_of_day():
            return value.isoformat()
        case None | str() | int():
            return value
    return value if isinstance(value, float) and isfinite(value) else str(value)


def _parsed_json(record: Record, value: bytes) -> str:
    try:
        return one_line(compact(parse_line(value.decode().strip())))
    except ValueError as error:
        raise UnreadableRecordError(
            f"partition {record.partition}, offset {record.offset}: the value is not JSON. Read it with "
            f"--value-format text, or start after the record.",
            partition=record.partition,
            offset=record.offset,
        ) from error


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
                own = tuple((each["key"], each["value"]) for each in row["headers"] or () if each is not None)
            if not headers or headers <= {*(own or ())}:
                yield Record(partition, base_offset + at, time_ms, row["key"], row["value"], own)


def as_columns(record: Record) -> str:
    """Return partition, offset, time, key, value and headers, separated by tabs. Unprintable text is escaped."""
    headers = [_UNREADABLE]
    if record.headers is not None:
        headers = [
            f"{readable(None if name is None else name.encode())}={readable(value)}" for name, value in record.headers
        ]
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
    fields = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": json_of(record.key),
        "value": json_of(record.value),
        "headers": headers,
    }
    texts = {name: json_line(value) for name, value in fields.items()}
    if is_json and record.value is not None:
        texts["value"] = record.value.decode()
    return "{" + ", ".join(f'"{name}": {text}' for name, text in texts.items()) + "}"


def parse_format(text: str, topic: str) -> Callable[[Record], bytes]:
    """Return a function that formats a record as kcat does, without a line break at the end.

    Raises ValueError with the known formats if the text has another format or escape.
    """

    def part(match: re.Match[bytes]) -> bytes:
        """Convert a format or an escape to Python's notation."""
        name, escape = match.groups()
        if name == b"%":
            return b"%%"
        if name is not None and (not name or name not in _KCAT_FIELDS):
            raise ValueError(f"a format with {', '.join(f'%{each}' for each in _KCAT_FIELDS.decode())} and %%")
        if name is not None:
            return b"%%(%b)b" % name
        if escape in _KCAT_ESCAPES:
            return _KCAT_ESCAPES[escape]
        if len(escape) <= 1:
            raise ValueError(r"a format whose escapes are \n, \r, \t, \0, \xNN and \\")
        return bytes.fromhex(escape[1:].decode()).replace(b"%", b"%%")

    template = _KCAT_PART.sub(part, text.encode("utf-8", "surrogateescape"))
    return lambda record: template % _kcat_fields(record, topic)


def _kcat_fields(record: Record, topic: str) -> dict[bytes, bytes]:
    key, value, headers = record.key, record.value, record.headers or ()
    numbers = {
        b"p": record.partition,
        b"o": record.offset,
        b"K": -1 if key is None else len(key),
        b"S": -1 if value is None else len(value),
        b"T": -1 if record.timestamp_ms is None else record.timestamp_ms,
    }
    pairs = (
        b"=".join((b"NULL" if name is None else name.encode(), b"NULL" if each is None else each))
        for name, each in headers
    )
    texts = {b"t": topic.encode(), b"k": key or b"", b"s": value or b"", b"h": b",".join(pairs)}
    return {**texts, **{name: b"%d" % number for name, number in numbers.items()}}
