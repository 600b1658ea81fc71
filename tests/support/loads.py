"""Loads of small input for tests, in one process instead of Spark."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.plan import Completion, PartitionResult, Plan
from spark_cas.log.backend import Backend
from spark_cas.log.load.after_expansion import earlier_rows
from spark_cas.log.load.append_rows import append_rows
from spark_cas.log.load.planning import complete_job, pin_plan
from tests.support.faults import Fault, FaultyLog, InjectedFaultError, When
from tests.support.writing import table_of

Rows = dict[int, list[str]]
"""Input rows: the values by partition, in order."""

TEN: Rows = {0: [f"0.{at}" for at in range(10)]}

LIMITS = ChunkLimits(max_records=3, max_bytes=1_000_000, max_seconds=1_000)


def rows_of(count: int, *partitions: int) -> Rows:
    """Return ``count`` different values for each partition."""
    return {partition: [f"{partition}.{at}" for at in range(count)] for partition in partitions}


def batches_of(rows: Rows, size: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows as a task receives them: batches of at most ``size`` rows, with partitions in turn."""
    longest = max(map(len, rows.values()), default=0)
    for at in range(0, longest, size):
        for partition, values in rows.items():
            for batch in table_of(values[at : at + size]).to_batches():
                yield partition, batch


def load(
    log: Backend,
    plan: Plan,
    rows: Rows,
    *,
    task: str = "run/0",
    limits: ChunkLimits = LIMITS,
    size: int = 2,
    wait: float = 10.0,
    has_end: bool = True,
) -> tuple[PartitionResult, ...]:
    """Run one attempt of a single task with these rows."""
    batches = batches_of(rows, size)
    return append_rows(log, plan, batches, task=task, limits=limits, has_end=has_end, fenced_retry_wait_seconds=wait)


def run_job(
    log: Backend, job: str, rows: Rows, *, expected: str = "end", run: str = "run", size: int = 2
) -> Completion:
    """Run a job: plan, one task, completion."""
    plan = pin_plan(log, job, ExpectedOffsets.parse(expected))
    return complete_job(log, plan, load(log, plan, rows, task=f"{run}/0", size=size))


def run_rest(log: Backend, job: str, rows: Rows, *, expected: str = "end", run: str = "rest") -> Completion:
    """Run a job again after the log was expanded. Skip the rows that are in the log and place the others again.

    ``rows`` are by partition of the first layout. The remaining rows of a partition go alternately to that partition
    and to a new one.
    """
    earlier = earlier_rows(log, job)
    plan = pin_plan(log, job, ExpectedOffsets.parse(expected), earlier=earlier)
    for number, each in enumerate(earlier):
        partitions = log.layout().partitions if number == len(earlier) - 1 else earlier[number + 1].partitions
        rows = placed_anew({at: values[each.rows[at] :] for at, values in rows.items()}, partitions)
    return complete_job(log, plan, load(log, plan, rows, task=f"{run}/0"))


def placed_anew(rows: Rows, partitions: int) -> Rows:
    """Place rows in a layout with more partitions: every second row moves to the last partition."""
    placed: Rows = {at: values[::2] for at, values in rows.items()}
    placed[partitions - 1] = [
        *placed.get(partitions - 1, []),
        *(each for values in rows.values() for each in values[1::2]),
    ]
    return {at: values for at, values in placed.items() if values}


def crash_after_chunks(
    log: Backend, job: str, rows: Rows, chunks: int, *, expected: str = "end", run: str = "run"
) -> None:
    """Start a job and simulate a crash after ``chunks`` chunks are in the log."""
    with pytest.raises(InjectedFaultError):
        run_job(FaultyLog(log, Fault("append", chunks, When.AFTER)), job, rows, expected=expected, run=run)


def edited(at: int, *values: str, instead_of: int = 1) -> Rows:
    """Return ten rows, some of which are changed."""
    rows = list(TEN[0])
    rows[at : at + instead_of] = values
    return {0: rows}


def void(_: object) -> None:
    """Ignore a result."""
