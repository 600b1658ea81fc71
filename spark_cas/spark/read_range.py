"""Which offsets a read takes: what the options ask for, against what the log keeps."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from spark_cas.core.errors import OptionError, TrimmedError
from spark_cas.core.offsets import Bounds, OffsetRange

EARLIEST = -2
LATEST = -1

_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_PARTITION = re.compile(r"0|[1-9][0-9]{0,8}")
_EXPECTED = (
    'earliest, latest, or JSON that names each partition of the topic once, such as {"flights": {"0": 23, "1": -1}}, '
    "where -2 is the earliest and -1 the latest"
)


@dataclass(frozen=True, slots=True)
class ReadLimit:
    """One end of a read, as the options startingOffsets and endingOffsets of Spark's Kafka source give it."""

    everywhere: int | None
    """EARLIEST or LATEST for all partitions; None when each has its own."""
    topic: str = ""
    offsets: tuple[tuple[int, int], ...] = ()
    """By partition, sorted; EARLIEST and LATEST included."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an option; ValueError saying what was expected."""
        word = _WORDS.get(text.strip().lower())
        if word is not None:
            return cls(word)
        try:
            ((topic, offsets),) = json.loads(text, object_pairs_hook=tuple)
            pairs = tuple(sorted((_partition(key), _offset(value)) for key, value in offsets))
        except (ValueError, TypeError, RecursionError):
            raise ValueError(_EXPECTED) from None
        if len({partition for partition, _ in pairs}) < len(pairs):
            raise ValueError(_EXPECTED)
        return cls(None, topic, pairs)

    def resolve(self, option: str, topic: str, bounds: Sequence[Bounds]) -> tuple[int, ...]:
        """An offset for each partition of a log; OptionError when it is not the log that the option names."""
        if self.everywhere is not None:
            return tuple(_resolved(self.everywhere, each) for each in bounds)
        if self.topic != topic or [partition for partition, _ in self.offsets] != [*range(len(bounds))]:
            raise OptionError(
                f"option {option} must name topic {topic} and each of its {len(bounds)} partitions (0 to "
                f"{len(bounds) - 1}), and names others. -2 is the earliest, -1 the latest offset of a partition."
            )
        return tuple(_resolved(offset, bounds[partition]) for partition, offset in self.offsets)


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Which records of a log a read takes."""

    starting: ReadLimit = ReadLimit(EARLIEST)
    ending: ReadLimit = ReadLimit(LATEST)
    fail_on_data_loss: bool = True
    """False reads what is left where records that were asked for are gone."""

    def resolve(self, topic: str, bounds: Sequence[Bounds]) -> tuple[OffsetRange, ...]:
        """The offsets to read of each partition.

        Raises OptionError for a range that a partition does not have, TrimmedError when records of one are gone.
        """
        starts = self.starting.resolve("startingOffsets", topic, bounds)
        ends = self.ending.resolve("endingOffsets", topic, bounds)
        triples = zip(starts, ends, bounds, strict=True)
        return tuple(self._range(partition, *each) for partition, each in enumerate(triples))

    def kept(self, partition: int, wanted: OffsetRange, start_offset: int) -> OffsetRange:
        """What a partition that starts at ``start_offset`` still keeps of a range; TrimmedError unless all of it."""
        if wanted.base_offset >= start_offset:
            return wanted
        if self.fail_on_data_loss:
            raise TrimmedError(
                f"partition {partition}: offsets {wanted.base_offset} to {start_offset - 1}, which the read asks "
                f"for, are not kept any more. Read from offset {start_offset} on, or give failOnDataLoss=false to "
                f"read what is left."
            )
        return OffsetRange(start_offset, max(start_offset, wanted.end_offset))

    def _range(self, partition: int, start: int, end: int, bounds: Bounds) -> OffsetRange:
        for option, offset in (("startingOffsets", start), ("endingOffsets", end)):
            if offset > bounds.end_offset:
                raise OptionError(
                    f"option {option} says {offset} for partition {partition}, which ends at {bounds.end_offset}. "
                    f"Has the topic been made anew? Name an offset that is there, or -1 for the end."
                )
        if end < bounds.start_offset:
            return self.kept(partition, OffsetRange(min(start, end), end), bounds.start_offset)
        if start > end:
            raise OptionError(
                f"partition {partition} is to be read from offset {start} to {end}: startingOffsets lies behind "
                f"endingOffsets. Exchange them."
            )
        return self.kept(partition, OffsetRange(start, end), bounds.start_offset)


def _partition(key: str) -> int:
    if _PARTITION.fullmatch(key) is None:
        raise ValueError(key)
    return int(key)


def _offset(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not EARLIEST <= value < 2**63:
        raise ValueError(value)
    return value


def _resolved(offset: int, bounds: Bounds) -> int:
    return {EARLIEST: bounds.start_offset, LATEST: bounds.end_offset}.get(offset, offset)
