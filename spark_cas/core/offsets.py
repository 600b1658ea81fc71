"""Half-open ranges of offsets: they include ``base_offset`` and exclude ``end_offset``."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets from ``base_offset`` (inclusive) to ``end_offset`` (exclusive).

    The length counts offsets. A log with gaps has fewer records than that.
    """

    base_offset: int
    end_offset: int

    def __post_init__(self) -> None:
        if not 0 <= self.base_offset <= self.end_offset:
            raise ValueError(
                f"an offset range needs 0 <= base_offset <= end_offset, got {self.base_offset}, {self.end_offset}"
            )

    def __len__(self) -> int:
        return self.end_offset - self.base_offset

    def __contains__(self, offset: int) -> bool:
        return self.base_offset <= offset < self.end_offset

    def intersect(self, other: "OffsetRange") -> "OffsetRange | None":
        base = max(self.base_offset, other.base_offset)
        end = min(self.end_offset, other.end_offset)
        return OffsetRange(base, end) if base < end else None

    def split(self, pieces: int) -> "tuple[OffsetRange, ...]":
        """Split the range into at most ``pieces`` non-empty consecutive ranges whose sizes differ by at most one."""
        if pieces < 1:
            raise ValueError(f"a range is split into at least one piece, got {pieces}")
        pieces = min(pieces, len(self))
        cuts = [self.base_offset + len(self) * i // pieces for i in range(pieces + 1)] if pieces else []
        return tuple(OffsetRange(a, b) for a, b in pairwise(cuts))


def outside(offsets: OffsetRange, used: Iterable[tuple[int, int]]) -> Iterator[OffsetRange]:
    """Yield the parts of a range outside the ranges in ``used``, which are half-open and sorted by offset."""
    at = offsets.base_offset
    for base, end in used:
        if at < min(base, offsets.end_offset):
            yield OffsetRange(at, min(base, offsets.end_offset))
        at = max(at, end)
    if at < offsets.end_offset:
        yield OffsetRange(at, offsets.end_offset)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The start and end offset of a partition.

    ``start_offset`` is the oldest retained offset. ``end_offset`` is above all committed records, and no open
    transaction has records below it. The next conditional append expects ``end_offset``.
    """

    start_offset: int
    end_offset: int

    def __post_init__(self) -> None:
        if not 0 <= self.start_offset <= self.end_offset:
            raise ValueError(
                f"bounds need 0 <= start_offset <= end_offset, got {self.start_offset}, {self.end_offset}"
            )

    @property
    def range(self) -> OffsetRange:
        return OffsetRange(self.start_offset, self.end_offset)

    def require(self, offsets: OffsetRange) -> None:
        """Raise ValueError unless the partition retains all of a range."""
        if offsets.base_offset < self.start_offset or offsets.end_offset > self.end_offset:
            raise ValueError(
                f"offsets {offsets.base_offset} to {offsets.end_offset} were requested, but the partition has "
                f"{self.start_offset} to {self.end_offset}. Request offsets within this range."
            )
