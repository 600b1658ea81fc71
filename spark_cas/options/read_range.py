"""Which offsets a read takes: what the options ask for, against what the logs keep."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spark_cas.core.errors import OptionError, TrimmedError, TruncatedError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.options.topic_partitions import Numbers, TopicPartition, listing, parse_numbers

EARLIEST = -2
LATEST = -1

_WORDS = {"earliest": EARLIEST, "latest": LATEST}

Since = Callable[[TopicPartition, int], int | None]
"""The offset of a partition's first record that is as new as a time: `Backend.offset_since`."""


def parse_offsets(text: str) -> int | Numbers:
    """Read the options startingOffsets and endingOffsets; ValueError saying what was expected."""
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
    """Read the options startingOffsetsByTimestamp and endingOffsetsByTimestamp; ValueError likewise."""
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
    """Which option gave it."""
    wanted: int | Numbers
    """For all partitions, or for each. An offset, EARLIEST and LATEST included; or a time, see ``timed``."""
    timed: bool = False
    """Whether times are meant, in milliseconds since 1970: the first record that is as new."""
    or_latest: bool = False
    """Whether a time that no record has reached is the end; else it is an error."""

    def resolve(self, bounds: Mapping[TopicPartition, Bounds], since: Since) -> dict[TopicPartition, int]:
        """An offset for each partition; OptionError when the option names others, or a time without records."""
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
        found = since(at, time_ms)
        if found is not None and found < bounds.end_offset:
            return max(found, bounds.start_offset)
        if self.or_latest:
            return bounds.end_offset
        raise OptionError(
            f"option {self.option} asks for records of {at} from {time_ms} ms since 1970 on, and all that it has are "
            f"older. Name an earlier time, or give startingOffsetsByTimestampStrategy=latest to begin at the end."
        )


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Which records of the logs a read takes."""

    starting: ReadLimit = ReadLimit("startingOffsets", EARLIEST)
    ending: ReadLimit = ReadLimit("endingOffsets", LATEST)
    fail_on_data_loss: bool = True
    """False reads what is left where records that were asked for are gone."""
    seen: bool = False
    """Whether the offsets are known to have been in this very log: it lost records where it ends before them."""

    def resolve(self, bounds: Mapping[TopicPartition, Bounds], since: Since) -> dict[TopicPartition, OffsetRange]:
        """The offsets to read of each partition.

        Raises OptionError for a range that a partition does not have, TrimmedError when records of one are gone,
        TruncatedError when it ends before an offset that was seen.
        """
        starts, ends = self.starting.resolve(bounds, since), self.ending.resolve(bounds, since)
        return {at: self._range(at, starts[at], ends[at], each) for at, each in bounds.items()}

    def _range(self, at: TopicPartition, start: int, end: int, bounds: Bounds) -> OffsetRange:
        for option, offset in ((self.starting.option, start), (self.ending.option, end)):
            if offset > bounds.end_offset:
                if self.seen:
                    raise TruncatedError(
                        f"{at} ends at {bounds.end_offset}, and it is to be read up to offset {offset}, which it had "
                        f"when that was asked for: the log lost records. Find out why, then bootstrap again."
                    )
                raise OptionError(
                    f"option {option} says {offset} for {at}, which ends at {bounds.end_offset}. Has the topic been "
                    f"recreated? Name an offset that is there, or -1 for the end."
                )
        if end < bounds.start_offset == start:
            start = 0  # the earliest, and whatever that was when the end was named is gone
        if start > end:
            raise OptionError(
                f"{at} is to be read from offset {start} to {end}: {self.starting.option} lies behind "
                f"{self.ending.option}. Exchange them."
            )
        return kept(at, OffsetRange(start, end), bounds.start_offset, fail_on_data_loss=self.fail_on_data_loss)


def kept(at: TopicPartition, wanted: OffsetRange, start_offset: int, *, fail_on_data_loss: bool) -> OffsetRange:
    """What a partition that starts at ``start_offset`` still keeps of a range; TrimmedError unless that is all.

    Of a range that is empty, which may lie below, nothing is gone.
    """
    if wanted.base_offset >= start_offset:
        return wanted
    if fail_on_data_loss and len(wanted):
        raise TrimmedError(
            f"{at}: offsets {wanted.base_offset} to {start_offset - 1}, which the read asks for, are not kept any "
            f"more. Read from offset {start_offset} on, or give failOnDataLoss=false to read what is left."
        )
    return OffsetRange(start_offset, max(start_offset, wanted.end_offset))


def _at_offset(_: TopicPartition, offset: int, bounds: Bounds, __: Since) -> int:
    return {EARLIEST: bounds.start_offset, LATEST: bounds.end_offset}.get(offset, offset)
