"""The sizes at which growth is measured, and the turns at each size: fewer for sizes that take minutes."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScaleSizes:
    """The number of turns by size."""

    rows: Mapping[int, int]
    """Numbers of rows, all multiples of the smallest."""
    partitions: Mapping[int, int]
    fixed_rows: int
    """Rows of the loads that differ in partitions."""
    chunks: Mapping[int, int]
    """Reads of all records of a log, by chunks. Single steps are measured ``steps`` times."""
    steps: int
    executors: Mapping[int, int]
    spread_rows: int
    """Rows of the loads that differ in executors."""


FULL = ScaleSizes(
    rows={1_000_000: 3, 4_000_000: 3, 16_000_000: 2, 64_000_000: 1},
    partitions={1: 2, 4: 2, 16: 2, 64: 2, 256: 1, 1000: 1},
    fixed_rows=1_000_000,
    chunks={100: 3, 1_000: 3, 10_000: 1, 100_000: 1},
    steps=21,
    executors={1: 2, 2: 2},
    spread_rows=4_000_000,
)
QUICK = ScaleSizes(
    rows={10_000: 1, 40_000: 1},
    partitions={1: 1, 4: 1},
    fixed_rows=10_000,
    chunks={10: 1, 100: 1},
    steps=3,
    executors={1: 1, 2: 1},
    spread_rows=10_000,
)
