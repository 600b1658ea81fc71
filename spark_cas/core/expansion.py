"""Partition expansion (KIP-253): what is recorded of it, and in which order a reader may follow a log through it.

With more partitions most keys lie elsewhere, and offsets of two partitions say nothing of each other. So an expansion
records where each partition ended at that moment, its threshold: all that was appended under earlier layouts lies
below, all under later ones at or above it, or in partitions that were added.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_cas.core.errors import LayoutChangedError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.partitioner import Partitioner
from spark_cas.core.plan import Layout


@dataclass(frozen=True, slots=True)
class Expansion:
    """Partitions that were added to a log at one moment."""

    epoch: int
    """The layout epoch from then on."""
    partitions: int
    """The partition count from then on."""
    thresholds: tuple[int, ...]
    """By partition that was there before: the offset at which it ended."""

    def __post_init__(self) -> None:
        if not 0 < len(self.thresholds) < self.partitions or min(self.thresholds) < 0:
            msg = f"an expansion adds partitions to some whose ends are known, got {self}"
            raise ValueError(msg)

    @property
    def before(self) -> int:
        """The partition count until then."""
        return len(self.thresholds)

    @property
    def moves_keys_among_old(self) -> bool:
        """Whether a key can go from one partition to another that was there before as well.

        Partitions are hashes modulo the count: not so when the new count is a multiple of the old one.
        """
        return self.partitions % self.before != 0

    def passed(self, positions: Mapping[int, int]) -> bool:
        """Whether a reader at these positions has read all that came before; what it does not read is passed over."""
        return all(positions.get(each, threshold) >= threshold for each, threshold in enumerate(self.thresholds))


@dataclass(frozen=True, slots=True)
class Intent:
    """An expansion that was begun. Until it is finished, nobody is granted a claim."""

    epoch: int
    """The layout epoch that the log will have."""
    partitions: int
    """The partition count that the log will have."""
    before: int
    """The partition count that it has."""


@dataclass(frozen=True, slots=True)
class Layouts:
    """How a log came to the partitions that it has."""

    layout: Layout
    """The newest that is finished."""
    expansions: tuple[Expansion, ...] = ()
    """Oldest first."""
    pending: Intent | None = None
    """An expansion that is not finished."""
    partitioner: Partitioner | None = None
    """The partitioner that is recorded with the log; None if no write of the log has named one."""


def reading_limits(
    expansions: Sequence[Expansion], positions: Mapping[int, int], *, whole: bool = False
) -> dict[int, int]:
    """Up to which offset some partitions may be read now by a reader at these positions; the others freely.

    A partition that was added is read from then on that the reader has passed the threshold of each earlier one.
    Where keys also move among the earlier ones, none of these is read beyond its threshold before that. So whatever
    is read of a key next was appended after all that was read of it: also within a batch, whose partitions are read
    in any order, as long as ``positions`` are those at its begin.

    With ``whole`` the earlier ones wait in any case. So no load as a whole is cut: none goes on beyond an expansion,
    and each lies below all of the thresholds, or at or above them and in what was added.
    """
    limits: dict[int, int] = {}
    for expansion in expansions:
        if expansion.passed(positions):
            continue
        for partition, position in positions.items():
            if partition >= expansion.before:
                limit = position
            elif whole or expansion.moves_keys_among_old:
                limit = max(position, expansion.thresholds[partition])
            else:
                continue
            limits[partition] = min(limit, limits.get(partition, limit))
    return limits


def layout_at(expansions: Sequence[Expansion], partition: int, offset: int) -> int:
    """Under which layout the record at an offset was appended: how many of the expansions came before it."""
    return max(
        (
            number
            for number, each in enumerate(expansions, 1)
            if partition >= each.before or offset >= each.thresholds[partition]
        ),
        default=0,
    )


def partitions_at(layouts: Layouts, partition: int, offset: int) -> int:
    """Return the partition count of a log when the record at an offset was appended."""
    passed = layout_at(layouts.expansions, partition, offset)
    if passed < len(layouts.expansions):
        return layouts.expansions[passed].before
    return layouts.layout.partitions


def require_named_as_now(wanted: ExpectedOffsets, expansions: Sequence[Expansion], partitions: int) -> None:
    """LayoutChangedError when the partitions that are named are just those that a log had before some were added.

    Then the offsets are taken for a bound that was read at that time, which says nothing of the new partitions: to
    take these at their end of now would accept what was written there unseen. Whoever means the new ones to be taken
    so can name them.
    """
    named = [partition for partition, _ in wanted.offsets]
    if any(named == [*range(each.before)] for each in expansions):
        raise LayoutChangedError(
            f"the expected offsets name {len(named)} partitions, as many as the log had before partitions were "
            f"added; now it has {partitions}. Offsets from before say nothing of what was written to the new ones. "
            f"Nothing was appended. Bootstrap again and decide anew, or name all {partitions} partitions (null for "
            f"no check)."
        )
