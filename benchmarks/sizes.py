"""How much is measured."""

from dataclasses import dataclass

PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rows and repeats of one run of the benchmark."""

    rows: int
    """Rows of the timed comparisons."""
    repeats: int
    """Counted times of each side, after one that is not counted."""
    process_repeats: int
    """The same, where whole processes are timed."""
    few_rows: int
    """The smaller partition of the comparison of memory."""
    many_rows: int
    """The larger one."""
    appends: int
    """Small appends of the comparison of their times."""
    past_jobs: int
    """Jobs that a log has seen when another comes."""
    job_repeats: int
    """Counted appends under a new job name, of each side."""


FULL = Sizes(
    rows=4_000_000,
    repeats=7,
    process_repeats=3,
    few_rows=4_000_000,
    many_rows=40_000_000,
    appends=1000,
    past_jobs=100_000,
    job_repeats=51,
)
QUICK = Sizes(
    rows=200_000,
    repeats=3,
    process_repeats=1,
    few_rows=200_000,
    many_rows=2_000_000,
    appends=100,
    past_jobs=1_000,
    job_repeats=11,
)
