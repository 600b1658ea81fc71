"""Offset ranges: always half open, ``base_offset`` included, ``end_offset`` not."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets from ``base_offset`` up to, and without, ``end_offset``.

    ``end_offset - base_offset`` counts offsets; a log with gaps holds fewer records than that.
    """

    base_offset: int
    end_offset: int

    def __post_init__(self) -> None:
        if not 0 <= self.base_offset <= self.end_offset:
            msg = f"an offset range needs 0 <= base_offset <= end_offset, got {self.base_offset}, {self.end_offset}"
            raise ValueError(msg)

    def __len__(self) -> int:
        return self.end_offset - self.base_offset

    def __contains__(self, offset: int) -> bool:
        return self.base_offset <= offset < self.end_offset

    def intersect(self, other: "OffsetRange") -> "OffsetRange | None":
        """The offsets in both ranges, or None when they share none."""
        base = max(self.base_offset, other.base_offset)
        end = min(self.end_offset, other.end_offset)
        return OffsetRange(base, end) if base < end else None

    def split(self, pieces: int) -> "tuple[OffsetRange, ...]":
        """At most ``pieces`` non-empty ranges that follow one another and cover this one; sizes differ by one."""
        if pieces < 1:
            msg = f"a range is split into at least one piece, got {pieces}"
            raise ValueError(msg)
        pieces = min(pieces, len(self))
        cuts = [self.base_offset + len(self) * i // pieces for i in range(pieces + 1)] if pieces else []
        return tuple(OffsetRange(a, b) for a, b in pairwise(cuts))


def outside(offsets: OffsetRange, taken: Iterable[tuple[int, int]]) -> Iterator[OffsetRange]:
    """The parts of a range that lie in none of those taken, which are half open and in offset order."""
    at = offsets.base_offset
    for base, end in taken:
        if at < min(base, offsets.end_offset):
            yield OffsetRange(at, min(base, offsets.end_offset))
        at = max(at, end)
    if at < offsets.end_offset:
        yield OffsetRange(at, offsets.end_offset)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a partition still keeps: ``start_offset`` is the oldest offset kept.

    Every committed record lies below ``end_offset`` and nothing below it is undecided: it is the
    offset that the next conditional append expects.
    """

    start_offset: int
    end_offset: int

    def __post_init__(self) -> None:
        if not 0 <= self.start_offset <= self.end_offset:
            msg = f"bounds need 0 <= start_offset <= end_offset, got {self.start_offset}, {self.end_offset}"
            raise ValueError(msg)

    @property
    def range(self) -> OffsetRange:
        """All offsets that can be read."""
        return OffsetRange(self.start_offset, self.end_offset)

    def require(self, offsets: OffsetRange) -> None:
        """ValueError unless all of a range is kept."""
        if offsets.base_offset < self.start_offset or offsets.end_offset > self.end_offset:
            msg = (
                f"offsets {offsets.base_offset} to {offsets.end_offset} were asked for, but the partition keeps "
                f"{self.start_offset} to {self.end_offset}. Ask for offsets within these."
            )
            raise ValueError(msg)
