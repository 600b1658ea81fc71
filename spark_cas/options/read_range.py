"""Resolve the offsets of a read: the requested range against the start and end of each partition."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spark_cas.core.errors import OptionError, TrimmedError, TruncatedError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.options.topic_partitions import Numbers, TopicPartition, listing, parse_numbers

EARLIEST = -2
LATEST = -1

_WORDS = {"earliest": EARLIEST, "latest": LATEST}

Since = Callable[[TopicPartition, int], int | None]
"""Returns the offset of a partition's first record at or after a time: `Backend.offset_since`."""


def parse_offsets(text: str) -> int | Numbers:
    """Parse startingOffsets or endingOffsets; raise ValueError with the expected form."""
    word = _WORDS.get(text.strip().lower())
    if word is not None:
        return word
    try:
        return parse_numbers(text, EARLIEST)
    except ValueError:
        raise ValueError(
            'earliest, latest, or JSON that names each partition once, such as {"flights": {"0": 23, "1": -1}}, '
            "where -2 is the earliest and -1 the latest"
        ) from None


def parse_times(text: str) -> Numbers:
    """Parse startingOffsetsByTimestamp or endingOffsetsByTimestamp; raise ValueError with the expected form."""
    try:
        return parse_numbers(text, 0)
    except ValueError:
        raise ValueError(
            "JSON that names each partition once with milliseconds since 1970, such as "
            '{"flights": {"0": 1767225600000, "1": 1767225600000}}'
        ) from None


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
        """Return an offset for each partition.

        Args:
            bounds: The start and end offset of each partition to read.
            since: Returns the offset of the first record at or after a time.

        Raises:
            OptionError: The option does not name exactly these partitions, or a time has no records.
        """
        wanted = dict.fromkeys(bounds, self.wanted) if isinstance(self.wanted, int) else dict(self.wanted)
        if wanted.keys() != bounds.keys():
            hint = "" if self.timed else " -2 is the earliest, -1 the latest offset of a partition."
            raise OptionError(
                f"option {self.option} must name each partition that is read, and no other: {listing(bounds)}. It "
                f"names {listing(wanted)}.{hint}"
            )
        find = self._at_time if self.timed else _at_offset
        return {at: find(at, wanted[at], each, since) for at, each in bounds.items()}

    def _at_time(self, at: TopicPartition, time_ms: int, bounds: Bounds, since: Since) -> int:
        result = since(at, time_ms)
        if result is not None and result < bounds.end_offset:
            return max(result, bounds.start_offset)
        if self.or_latest:
            return bounds.end_offset
        raise OptionError(
            f"option {self.option} is {time_ms} ms since 1970, but all records of {at} are older. Name an earlier "
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

        Args:
            bounds: The start and end offset of each partition to read.
            since: Returns the offset of the first record at or after a time.

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
    """Return the retained part of a range; raise TrimmedError if records are missing.

    An empty range below ``start_offset`` lacks no records.

    Args:
        at: The partition, for errors.
        wanted: The requested range.
        start_offset: The oldest retained offset.
        fail_on_data_loss: Whether to raise TrimmedError instead of returning a shorter range.
    """
    if wanted.base_offset >= start_offset:
        return wanted
    if fail_on_data_loss and len(wanted):
        raise TrimmedError(
            f"{at}: the read begins with offsets {wanted.base_offset} to {start_offset - 1}, which were deleted. "
            f"Start at offset {start_offset}, or set failOnDataLoss=false to read the existing records."
        )
    return OffsetRange(start_offset, max(start_offset, wanted.end_offset))


def _at_offset(_: TopicPartition, offset: int, bounds: Bounds, __: Since) -> int:
    return {EARLIEST: bounds.start_offset, LATEST: bounds.end_offset}.get(offset, offset)
