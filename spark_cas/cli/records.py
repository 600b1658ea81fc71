"""`read`, `tail`: show the records of a log."""

import argparse
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice

from spark_cas.cli.lines import Record, RecordText, as_columns, as_json, records_in
from spark_cas.cli.opening import naming, opened, read_options
from spark_cas.core.errors import TruncatedError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.log.backend import Backend
from spark_cas.log.open import open_log
from spark_cas.options.read_range import ReadRange
from spark_cas.options.topic_partitions import TopicPartition
from spark_cas.programs.errors import UsageError

_POLL_SECONDS = 0.5
_WIDER = 4
"""If the last offsets have too few records, the searched range grows by this factor."""


def read(arguments: argparse.Namespace) -> None:
    """Show the records of each partition."""
    base, end = arguments.base_offset, arguments.end_offset
    ranged = base is None and end is None
    if arguments.partition is None and not ranged:
        raise UsageError("--from, --to: an offset belongs to a partition. Add --partition.")
    options = read_options(arguments, ranged=ranged)
    spec = options.selection.only()
    with naming(spec), open_log(spec) as log:
        partitions = tuple(_partitions(log, arguments.partition))
        bounds = dict(zip(partitions, log.bounds_of(partitions, waiting=True), strict=True))
        if ranged:
            ranges = _resolved(log, bounds, options.range)
        else:
            ranges = {each: _between(at, base, end) for each, at in bounds.items()}
        records = (record for each, offsets in ranges.items() for record in records_in(log, each, offsets))
        _show(islice(records, arguments.limit), _text_of(arguments))


def tail(arguments: argparse.Namespace) -> None:
    """Show the newest records of each partition."""
    as_text = _text_of(arguments)
    with opened(arguments) as log:
        log_id = log.layout().log_id
        ends: dict[int, int] = {}
        partitions = tuple(_partitions(log, arguments.partition))
        for each, bounds in zip(partitions, log.bounds_of(partitions, waiting=True), strict=True):
            _show(_newest(log, each, bounds, arguments.count), as_text)
            ends[each] = bounds.end_offset
        while arguments.follow:
            time.sleep(_POLL_SECONDS)
            _show_more(log, log_id, arguments.partition, ends, as_text)


def _text_of(arguments: argparse.Namespace) -> RecordText:
    return as_json if arguments.json else as_columns


def _show(records: Iterable[Record], as_text: RecordText) -> None:
    for record in records:
        print(as_text(record))
    sys.stdout.flush()


def _partitions(log: Backend, partition: int | None) -> Iterable[int]:
    layout = log.layout()
    if partition is None:
        return range(layout.partitions)
    try:
        layout.require(partition)
    except ValueError as error:
        raise UsageError(f"--partition: {error}") from None
    return (partition,)


def _resolved(log: Backend, bounds: Mapping[int, Bounds], requested: ReadRange) -> dict[int, OffsetRange]:
    """Return the offsets to read of each partition. Raises OptionError, TrimmedError as `ReadRange.resolve`."""
    ranges = requested.resolve(
        {TopicPartition(log.topic, each): at for each, at in bounds.items()},
        lambda at, timestamp_ms: log.offset_since(at.partition, timestamp_ms),
    )
    return {at.partition: offsets for at, offsets in ranges.items()}


def _between(bounds: Bounds, base: int | None, end: int | None) -> OffsetRange:
    """Return the range between two offsets, by default the bounds of the partition.

    Raises UsageError if the partition does not have all of these offsets.
    """
    try:
        offsets = OffsetRange(
            bounds.start_offset if base is None else base, bounds.end_offset if end is None else end
        )
        bounds.require(offsets)
    except ValueError as error:
        raise UsageError(f"--from, --to: {error}") from None
    return offsets


def _newest(log: Backend, partition: int, bounds: Bounds, count: int) -> Iterable[Record]:
    """Return the last records of a partition, in order."""
    width = count
    while True:
        base = max(bounds.start_offset, bounds.end_offset - width)
        records = deque(records_in(log, partition, OffsetRange(base, bounds.end_offset)), maxlen=count)
        if len(records) == count or base == bounds.start_offset:
            return records
        width *= _WIDER


def _show_more(log: Backend, log_id: str, partition: int | None, ends: dict[int, int], as_text: RecordText) -> None:
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
            _show(records_in(log, each, OffsetRange(base, bounds.end_offset)), as_text)
        ends[each] = bounds.end_offset
