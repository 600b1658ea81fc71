"""The offsets of a read: the requested range within the bounds of each partition, and its tasks and micro-batches."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

from spark_cas.core.errors import OptionError, TrimmedError, TruncatedError
from spark_cas.core.offsets import Bounds, OffsetRange

EARLIEST = -2
LATEST = -1

Place = TypeVar("Place")

_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_PARTITION = re.compile(r"0|[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of one of the logs that a read selects."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"partition {self.partition} of topic {self.topic}"


Numbers = tuple[tuple[TopicPartition, int], ...]
"""A number for each of several partitions, sorted."""

Ranges = Mapping[TopicPartition, OffsetRange]
Task = tuple[tuple[TopicPartition, OffsetRange], ...]
"""Ranges of one topic, at least one, that a task reads in sequence."""

_ALONE = 32
"""Up to this many ranges, each range has its own task, as in Spark's own source. More ranges never use fewer
tasks."""
_SHARED_OFFSETS = 10_000
"""A number of records of a few hundred bytes that a task reads faster than it starts."""

Since = Callable[[TopicPartition, int], int | None]
"""Returns the offset of a partition's first record at or after a time: `Backend.offset_since`."""


_MALFORMED = (AttributeError, RecursionError, TypeError, ValueError)
"""Errors of parsing JSON as another structure than the text has."""


def parse_assigned(text: str) -> tuple[TopicPartition, ...]:
    """Parse ``{"flights": [0, 1]}``; raise ValueError with the expected form."""
    try:
        named = [(topic, each) for topic, numbers in parse_object(text).items() for each in numbers]
    except _MALFORMED:
        named = []
    valid = [TopicPartition(topic, each) for topic, each in named if type(each) is int and 0 <= each < 2**31]
    if not named or len(set(valid)) < len(named):
        raise ValueError('JSON that names topics and their partitions, each once, such as {"flights": [0, 1]}')
    return tuple(sorted(valid))


def parse_object(text: str) -> dict[str, Any]:
    """Parse a JSON object; raise ValueError or RecursionError for other text, and if an object has a name twice."""

    def each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        result = dict(pairs)
        if len(result) < len(pairs):
            raise ValueError("a name is there twice")
        return result

    result = json.loads(text, object_pairs_hook=each_once)
    if not isinstance(result, dict):
        raise ValueError("no object")  # noqa: TRY004 - the caller replaces it
    return result


def listing(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as text: topic flights (0 to 3), topic delays (0, 2)."""
    by_topic = groupby(sorted(partitions), key=lambda at: at.topic)
    return ", ".join(f"topic {topic} ({_numbers([at.partition for at in group])})" for topic, group in by_topic)


def _numbers(partitions: list[int]) -> str:
    if len(partitions) > 1 and partitions == [*range(partitions[0], partitions[-1] + 1)]:
        return f"{partitions[0]} to {partitions[-1]}"
    return ", ".join(map(str, partitions))


def parse_offsets(text: str) -> int | Numbers:
    """Parse startingOffsets or endingOffsets; raise ValueError with the expected form."""
    word = _WORDS.get(text.strip().lower())
    if word is not None:
        return word
    return _parse_numbers(
        text,
        EARLIEST,
        'earliest, latest, or JSON that names each partition once, such as {"flights": {"0": 23, "1": -1}}, where -2 '
        "is the earliest and -1 the latest",
    )


def parse_times(text: str) -> Numbers:
    """Parse startingOffsetsByTimestamp or endingOffsetsByTimestamp; raise ValueError with the expected form."""
    return _parse_numbers(
        text,
        0,
        "JSON that names each partition once with milliseconds since 1970, such as "
        '{"flights": {"0": 1767225600000, "1": 1767225600000}}',
    )


def _parse_numbers(text: str, least: int, expected: str) -> Numbers:
    """Parse a number of at least ``least`` for each partition; raise ValueError with the expected form."""
    try:
        named = [(topic, *each) for topic, numbers in parse_object(text).items() for each in numbers.items()]
    except _MALFORMED:
        named = []
    for _, partition, number in named:
        if type(number) is not int or not least <= number < 2**63 or _PARTITION.fullmatch(partition) is None:
            raise ValueError(expected)
    if not named:
        raise ValueError(expected)
    return tuple(sorted((TopicPartition(topic, int(partition)), number) for topic, partition, number in named))


@dataclass(frozen=True, slots=True)
class ReadLimit:
    """One end of a read."""

    option: str
    """The option that set it."""
    wanted: int | Numbers
    """A value for all partitions, or one for each: an offset, EARLIEST, LATEST or, with ``timed``, a time."""
    timed: bool = False
    """Whether the value is a time in milliseconds since 1970. It selects the first record at or after that time."""
    or_latest: bool = False
    """Whether a time after the last record means the end of the partition; else it is an error."""

    def resolve(self, bounds: Mapping[TopicPartition, Bounds], since: Since) -> dict[TopicPartition, int]:
        """Return an offset for each partition that is read, which ``bounds`` contains.

        Raises OptionError if the option does not name exactly these partitions, or if a time has no records.
        """
        wanted = dict.fromkeys(bounds, self.wanted) if isinstance(self.wanted, int) else dict(self.wanted)
        if wanted.keys() != bounds.keys():
            hint = "" if self.timed else " -2 is the earliest, -1 the latest offset of a partition."
            raise OptionError(
                f"option {self.option} must name each partition that is read, and no other: {listing(bounds)}. It "
                f"names {listing(wanted)}.{hint}"
            )
        return {at: self._offset(at, wanted[at], each, since) for at, each in bounds.items()}

    def _offset(self, at: TopicPartition, wanted: int, bounds: Bounds, since: Since) -> int:
        if not self.timed:
            return {EARLIEST: bounds.start_offset, LATEST: bounds.end_offset}.get(wanted, wanted)
        result = since(at, wanted)
        if result is not None and result < bounds.end_offset:
            return max(result, bounds.start_offset)
        if self.or_latest:
            return bounds.end_offset
        raise OptionError(
            f"option {self.option} is {wanted} ms since 1970, but all records of {at} are older. Name an earlier "
            f"time, or set startingOffsetsByTimestampStrategy=latest to begin at the end."
        )


@dataclass(frozen=True, slots=True)
class ReadRange:
    """The records that a read selects."""

    starting: ReadLimit = ReadLimit("startingOffsets", EARLIEST)
    ending: ReadLimit = ReadLimit("endingOffsets", LATEST)
    fail_on_data_loss: bool = True
    """Whether removed records in the range are an error. If False, the read returns the remaining records."""
    known: bool = False
    """Whether this log is known to have had the offsets. If so, an end before them means that the log lost
    records."""

    def resolve(self, bounds: Mapping[TopicPartition, Bounds], since: Since) -> dict[TopicPartition, OffsetRange]:
        """Return the offsets to read of each partition.

        Raises:
            OptionError: A partition does not have the requested range.
            TrimmedError: Requested records of a partition were removed.
            TruncatedError: A partition ends before an offset that it had.
        """
        starts, ends = self.starting.resolve(bounds, since), self.ending.resolve(bounds, since)
        return {at: self._range(at, starts[at], ends[at], each) for at, each in bounds.items()}

    def _range(self, at: TopicPartition, start: int, end: int, bounds: Bounds) -> OffsetRange:
        for option, offset in ((self.starting.option, start), (self.ending.option, end)):
            if offset > bounds.end_offset:
                if self.known:
                    raise TruncatedError(
                        f"{at} ends at {bounds.end_offset}, but the read was planned up to offset {offset}: the log "
                        f"lost records. Find the cause, then bootstrap again."
                    )
                raise OptionError(
                    f"option {option} is {offset} for {at}, which ends at {bounds.end_offset}. Check whether the "
                    f"topic was recreated. Name an existing offset, or -1 for the end."
                )
        if end < bounds.start_offset == start:
            start = 0  # "earliest", but the requested end was trimmed
        if start > end:
            raise OptionError(
                f"{at} is to be read from offset {start} to {end}: {self.starting.option} is after "
                f"{self.ending.option}. Exchange them."
            )
        return kept(at, OffsetRange(start, end), bounds.start_offset, fail_on_data_loss=self.fail_on_data_loss)


def kept(at: TopicPartition, wanted: OffsetRange, start_offset: int, *, fail_on_data_loss: bool) -> OffsetRange:
    """Return the part of a range from the oldest retained offset on.

    Raises TrimmedError if records are missing, unless ``fail_on_data_loss`` is false. An empty range lacks none.
    """
    if wanted.base_offset >= start_offset:
        return wanted
    if fail_on_data_loss and len(wanted):
        raise TrimmedError(
            f"{at}: the read begins with offsets {wanted.base_offset} to {start_offset - 1}, which were deleted. "
            f"Start at offset {start_offset}, or set failOnDataLoss=false to read the existing records."
        )
    return OffsetRange(start_offset, max(start_offset, wanted.end_offset))


@dataclass(frozen=True, slots=True)
class Splitting:
    """The values of the options minPartitions and maxRecordsPerPartition."""

    min_partitions: int | None = None
    """The minimum number of tasks, if there are as many offsets."""
    max_records: int | None = None
    """The maximum number of offsets per task. A task may read fewer records, because some offsets hold none."""

    def split(self, ranges: Ranges) -> tuple[Task, ...]:
        """Return the tasks of a read, which cover each range exactly once, in order within each partition.

        By default each partition is one task, and partitions with few offsets share a task if there are many
        partitions. If an option requests more tasks, larger partitions are split into more tasks. Tasks never have
        empty ranges.
        """
        total = sum(map(len, ranges.values()))
        parts = [(at, part) for at, each in ranges.items() for part in each.split(self._pieces(len(each), total))]
        if len(parts) <= _ALONE or self != Splitting():
            return tuple((each,) for each in parts)
        return _shared(parts)

    def _pieces(self, size: int, total: int) -> int:
        """Return the number of tasks for a range, rounded up so that the total reaches the minimum."""
        by_count = -(-size * (self.min_partitions or 1) // max(1, total))
        by_size = -(-size // (self.max_records or max(1, size)))
        return max(1, by_count, by_size)


def _shared(parts: Sequence[tuple[TopicPartition, OffsetRange]]) -> tuple[Task, ...]:
    most = len(parts) // _ALONE
    tasks: list[list[tuple[TopicPartition, OffsetRange]]] = []
    room = 0
    for at, part in parts:
        room -= len(part)
        if room < 0 or tasks[-1][0][0].topic != at.topic or len(tasks[-1]) == most:
            tasks.append([])
            room = _SHARED_OFFSETS - len(part)
        tasks[-1].append((at, part))
    return tuple(map(tuple, tasks))


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """The values of the options maxOffsetsPerTrigger, minOffsetsPerTrigger and maxTriggerDelay."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 0
    """The longest wait of a batch for ``min_offsets``, in milliseconds."""

    def waits(self, offsets: int, since_last_batch_ms: float) -> bool:
        """Whether a batch with this number of new offsets waits for more."""
        return offsets < (self.min_offsets or 0) and since_last_batch_ms < self.max_delay_ms


def share(sizes: Mapping[Place, int], limit: int, position: int) -> dict[Place, int]:
    """Divide the offsets of a micro-batch among partitions: ``limit`` in total, or all if there are fewer.

    Each partition with new offsets gets at least one offset. The remainder is divided in proportion to the sizes. If
    the limit is below the number of these partitions, they take turns: the partitions from ``position`` on, modulo
    the number of all partitions, get one offset each.

    Args:
        sizes: The number of new offsets of each partition, in a stable order.
        limit: The maximum number of offsets of a micro-batch.
        position: The number of offsets that the stream has read. A batch of turns increases it by ``limit``, so the
            next batch starts with later partitions, also after a restart.
    """
    if sum(sizes.values()) <= limit:
        return dict(sizes)
    used = dict.fromkeys(sizes, 0)
    places = list(sizes)
    first = position % len(places)
    waiting = [place for place in (*places[first:], *places[:first]) if sizes[place]]
    for place in waiting[:limit]:
        used[place] = 1
    spare, more = limit - sum(used.values()), sum(sizes.values()) - len(waiting)
    if spare:
        for place in waiting:
            used[place] += (sizes[place] - 1) * spare // more
        largest_first = sorted(waiting, key=lambda place: -sizes[place])
        for place in largest_first[: limit - sum(used.values())]:
            used[place] += 1
    return used
