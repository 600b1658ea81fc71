"""The sizes of the benchmarks."""

from dataclasses import dataclass

PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rows and repeats of one run of the benchmark."""

    rows: int
    """Rows of the timed comparisons."""
    repeats: int
    """Counted turns of each side, after one that is not counted."""
    process_repeats: int
    """Counted turns of comparisons that time whole processes."""
    few_rows: int
    """Rows of the smaller partition in the memory comparison."""
    many_rows: int
    """Rows of the larger partition in the memory comparison."""
    appends: int
    """Counted small appends of each side."""
    past_jobs: int
    """Earlier jobs of the log with many jobs."""
    job_repeats: int
    """Counted appends of each side under a new job name, and counted claims."""


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
