"""`read`, `tail`: show the records of a log."""

import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Annotated

import typer

from spark_cas.cli.lines import Record, Shown, as_columns, as_json, records_in
from spark_cas.cli.opening import Address, LogOptions, Servers, Topic, naming, opened, options_of
from spark_cas.core.errors import TruncatedError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.log.backend import Backend
from spark_cas.log.open import open_log
from spark_cas.options.read_range import ReadRange
from spark_cas.options.topic_partitions import TopicPartition
from spark_cas.programs.errors import ExitCode

_POLL_SECONDS = 0.5
_WIDER = 4
"""If the last offsets have too few records, the searched range grows by this factor."""

_Partition = Annotated[int | None, typer.Option(min=0, help="Only this partition.")]
_Json = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]


def read(
    *,
    log: Address = None,
    bootstrap_servers: Servers = None,
    topic: Topic = None,
    partition: _Partition = None,
    base_offset: Annotated[
        int | None, typer.Option("--from", min=0, help="With --partition: the first offset; else its start.")
    ] = None,
    end_offset: Annotated[
        int | None, typer.Option("--to", min=0, help="With --partition: read up to, and without, this offset.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=0, max=sys.maxsize, help="At most so many records.")] = None,
    json: _Json = False,
    log_option: LogOptions = None,
) -> None:
    """Show the records of each partition: partition, offset, time (UTC), key, value, headers."""
    if partition is None and (base_offset is not None or end_offset is not None):
        raise typer.BadParameter("an offset belongs to a partition: give --partition", param_hint="--from, --to")
    ranged = base_offset is None and end_offset is None
    options = options_of(log, bootstrap_servers, topic, log_option, ranged=ranged)
    spec = options.selection.only()
    with naming(spec), open_log(spec) as source:
        partitions = tuple(_partitions(source, partition))
        bounds = dict(zip(partitions, source.bounds_of(partitions, waiting=True), strict=True))
        if ranged:
            ranges = _resolved(source, bounds, options.range)
        else:
            ranges = {each: _between(at, base_offset, end_offset) for each, at in bounds.items()}
        records = (record for each, offsets in ranges.items() for record in records_in(source, each, offsets))
        _show(islice(records, limit), _shown(json))


def tail(
    *,
    log: Address = None,
    bootstrap_servers: Servers = None,
    topic: Topic = None,
    partition: _Partition = None,
    count: Annotated[
        int, typer.Option("-n", min=0, max=sys.maxsize, help="How many records of each partition.")
    ] = 10,
    follow: Annotated[bool, typer.Option("--follow", help="Continue with new records, until Ctrl-C.")] = False,
    json: _Json = False,
    log_option: LogOptions = None,
) -> None:
    """Show the newest records of each partition, in the format of `read`."""
    with opened(log, bootstrap_servers, topic, log_option) as source:
        log_id = source.layout().log_id
        ends: dict[int, int] = {}
        wanted = tuple(_partitions(source, partition))
        for each, bounds in zip(wanted, source.bounds_of(wanted, waiting=True), strict=True):
            _show(_newest(source, each, bounds, count), _shown(json))
            ends[each] = bounds.end_offset
        try:
            while follow:
                time.sleep(_POLL_SECONDS)
                _show_more(source, log_id, partition, ends, _shown(json))
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None


def _shown(json: bool) -> Shown:
    return as_json if json else as_columns


def _show(records: Iterable[Record], shown: Shown) -> None:
    for record in records:
        typer.echo(shown(record))


def _partitions(source: Backend, partition: int | None) -> Iterable[int]:
    layout = source.layout()
    if partition is None:
        return range(layout.partitions)
    try:
        layout.require(partition)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--partition") from None
    return (partition,)


def _resolved(source: Backend, bounds: Mapping[int, Bounds], wanted: ReadRange) -> dict[int, OffsetRange]:
    """Return the offsets to read of each partition. Raises OptionError, TrimmedError as `ReadRange.resolve`."""
    ranges = wanted.resolve(
        {TopicPartition(source.topic, each): at for each, at in bounds.items()},
        lambda at, timestamp_ms: source.offset_since(at.partition, timestamp_ms),
    )
    return {at.partition: offsets for at, offsets in ranges.items()}


def _between(bounds: Bounds, base: int | None, end: int | None) -> OffsetRange:
    """Return the range between two offsets, by default the bounds of the partition.

    Raises typer.BadParameter if the partition does not have all of these offsets.
    """
    try:
        offsets = OffsetRange(
            bounds.start_offset if base is None else base, bounds.end_offset if end is None else end
        )
        bounds.require(offsets)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--from, --to") from None
    return offsets


def _newest(source: Backend, partition: int, bounds: Bounds, count: int) -> Iterable[Record]:
    """Return the last records of a partition, in order."""
    width = count
    while True:
        base = max(bounds.start_offset, bounds.end_offset - width)
        found = deque(records_in(source, partition, OffsetRange(base, bounds.end_offset)), maxlen=count)
        if len(found) == count or base == bounds.start_offset:
            return found
        width *= _WIDER


def _show_more(source: Backend, log_id: str, partition: int | None, ends: dict[int, int], shown: Shown) -> None:
    """Show records that were committed since the offsets in ``ends``, and update these offsets.

    New partitions are shown from their start. Raises TruncatedError if the log was recreated or lost records.
    """
    if source.layout().log_id != log_id:
        raise TruncatedError(
            f"log {source.topic} was deleted and recreated. Run the command again to see the new one."
        )
    wanted = tuple(_partitions(source, partition))
    for each, bounds in zip(wanted, source.bounds_of(wanted, waiting=False), strict=True):
        seen = ends.get(each, 0)
        if bounds.end_offset < seen:
            _require_reached(source, each, seen)
            continue
        if seen < bounds.start_offset:
            gone = f"offsets {seen} to {bounds.start_offset - 1} were trimmed before they were shown"
            typer.echo(f"partition {each}: {gone}", err=True)
        base = max(seen, bounds.start_offset)
        if base < bounds.end_offset:
            _show(records_in(source, each, OffsetRange(base, bounds.end_offset)), shown)
        ends[each] = bounds.end_offset


def _require_reached(source: Backend, partition: int, seen: int) -> None:
    """Raise TruncatedError if a partition ends before ``seen`` in a second read.

    The second read follows after a pause, and waits for open transactions.
    """
    time.sleep(_POLL_SECONDS)  # leaders may be changing
    end = source.bounds(partition).end_offset
    if end < seen:
        raise TruncatedError(
            f"partition {partition} of log {source.topic} ends at {end}, and was shown up to {seen}: the log lost "
            f"records. Find the cause, then run the command again to show the remaining records."
        )
