"""Partition expansion (KIP-253): the recorded layouts of a log, and the read order across an expansion.

An expansion moves most keys to other partitions, and offsets of two partitions are not comparable. The log therefore
records the end offset of each partition at the expansion, its threshold. Records of earlier layouts have offsets
below the threshold. Records of later layouts have offsets at or above it, or are in added partitions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_cas.core.errors import LayoutChangedError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.partitioner import Partitioner
from spark_cas.core.plan import Layout


@dataclass(frozen=True, slots=True)
class Expansion:
    """Partitions that one expansion added to a log."""

    epoch: int
    """The layout epoch after the expansion."""
    partitions: int
    """The partition count after the expansion."""
    thresholds: tuple[int, ...]
    """The end offset of each earlier partition at the time of the expansion."""

    def __post_init__(self) -> None:
        if not 0 < len(self.thresholds) < self.partitions or min(self.thresholds) < 0:
            raise ValueError(f"an expansion adds partitions to some whose ends are known, got {self}")

    @property
    def before(self) -> int:
        """The partition count before the expansion."""
        return len(self.thresholds)

    @property
    def moves_keys_among_old(self) -> bool:
        """Whether a key can move from one earlier partition to another earlier partition.

        The partition of a key is its hash modulo the count. If the new count is a multiple of the old one, keys move
        only to added partitions.
        """
        return self.partitions % self.before != 0

    def passed(self, positions: Mapping[int, int]) -> bool:
        """Return whether a reader has passed all thresholds.

        The positions are the next offset to read, by partition. A partition that is missing counts as passed.
        """
        return all(positions.get(each, threshold) >= threshold for each, threshold in enumerate(self.thresholds))


@dataclass(frozen=True, slots=True)
class Intent:
    """An `Expansion` that has started. No load can acquire a claim until it is complete."""

    epoch: int
    partitions: int
    before: int


@dataclass(frozen=True, slots=True)
class Layouts:
    """The current layout of a log and its expansions."""

    layout: Layout
    """The newest complete layout."""
    expansions: tuple[Expansion, ...] = ()
    """All complete expansions, oldest first."""
    pending: Intent | None = None
    """The expansion in progress; None if there is none."""
    partitioner: Partitioner | None = None
    """The recorded partitioner of the log; None if no write of the log has named one."""


def reading_limits(
    expansions: Sequence[Expansion], positions: Mapping[int, int], *, whole: bool = False
) -> dict[int, int]:
    """Return the end offsets that bound the next read of a reader, by partition.

    A reader reads an added partition only after it has passed the threshold of each earlier partition. If keys also
    move among the earlier partitions, the reader stops at each threshold until it has passed all of them. For each
    key, the next records read are therefore newer than all records read before. The order also holds within a batch,
    whose partitions are read in any order, if ``positions`` are those at its start.

    A ``whole`` reader must not split an atomic load, so it stops at every threshold. No atomic load spans an
    expansion: all of its offsets are below the thresholds, or none is. A partition without an entry has no limit.
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


def partitions_at(layouts: Layouts, partition: int, offset: int) -> int:
    """Return the partition count of a log when the record at an offset was appended."""
    counts = [*(each.before for each in layouts.expansions), layouts.layout.partitions]
    passed = (
        number
        for number, each in enumerate(layouts.expansions, 1)
        if partition >= each.before or offset >= each.thresholds[partition]
    )
    return counts[max(passed, default=0)]


def require_named_as_now(wanted: ExpectedOffsets, expansions: Sequence[Expansion], partitions: int) -> None:
    """Raise LayoutChangedError if the expected offsets name exactly the partitions of an earlier layout.

    Such offsets were probably read before the expansion, so they do not cover records in the added partitions. By
    default, those partitions would be expected at their current end offsets, which would accept unread records. A
    caller that wants this can name the added partitions.
    """
    named = [partition for partition, _ in wanted.offsets]
    if any(named == [*range(each.before)] for each in expansions):
        raise LayoutChangedError(
            f"the expected offsets name {len(named)} partitions, as many as the log had before an expansion. Now it "
            f"has {partitions}, and the old offsets do not cover the new ones. Nothing was appended. Bootstrap again "
            f"and compute the rows from the new state, or name all {partitions} partitions (null for no check).",
            resumable=False,
        )
