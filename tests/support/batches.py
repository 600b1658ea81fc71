"""Micro-batches of small input for tests, in one process instead of a streaming query."""

from collections.abc import Mapping, Sequence

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import ConditionalLogError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.micro_batch import Batch
from spark_cas.core.plan import PartitionResult
from spark_cas.log.backend import Backend
from spark_cas.log.load.append_micro_batch import (
    begin_stream,
    complete_batch,
    ledger_before,
    load_batch,
    refused_batch,
)
from spark_cas.log.load.atomic_load import with_group
from tests.support.loads import LIMITS, Rows, batches_of


def run_batch(
    log: Backend,
    number: int,
    rows: Rows,
    *,
    job: str = "stream",
    query: str = "q",
    expected: str = "none",
    order_by: Sequence[str] | None = None,
    run: str = "run",
    task: int = 0,
    limits: ChunkLimits = LIMITS,
    wait: float = 10.0,
    whole: bool = False,
    cut_off: bool = False,
) -> tuple[PartitionResult, ...]:
    """Run a micro-batch from the plan to the commit in one task. With ``cut_off``, the task does not know its end.

    An attempt that was cut off does not reach the commit: see `run_cut_off`.
    """
    plan = with_group(log, begin_stream(log, job, ExpectedOffsets.parse(expected), whole=whole), number)
    batch = Batch(query, number)
    results = load_batch(
        log,
        plan,
        batch,
        batches_of(rows, 2),
        order_by=order_by,
        task=f"{run}/{task}",
        limits=limits,
        has_end=not cut_off,
        ledger=ledger_before(log, plan),
        fenced_retry_wait_seconds=wait,
    )
    complete_batch(log, plan, batch, results)
    return results


def run_cut_off(
    log: Backend,
    number: int,
    rows: Rows,
    *,
    order_by: Sequence[str] | None = None,
    limits: ChunkLimits = LIMITS,
    whole: bool = False,
) -> None:
    """Run an attempt of a micro-batch that gets only these rows, and does not know whether they are all."""
    plan = with_group(log, begin_stream(log, "stream", ExpectedOffsets.parse("none"), whole=whole), number)
    batch, pairs = Batch("q", number), batches_of(rows, 2)
    load_batch(log, plan, batch, pairs, task="run/0", limits=limits, order_by=order_by, has_end=False)


def run_tasks(
    log: Backend, number: int, rows: Rows, *, job: str = "stream", query: str = "q", run: str = "run"
) -> None:
    """Run a micro-batch from the plan to the commit, with a task per partition.

    All tasks run, even if one is rejected.
    """
    plan, batch = begin_stream(log, job, ExpectedOffsets.parse("none")), Batch(query, number)
    results: list[PartitionResult] = []
    ledger, refused = ledger_before(log, plan), []
    for partition, values in rows.items():
        pairs, task = batches_of({partition: values}, 2), f"{run}/{partition}"
        try:
            results += load_batch(log, plan, batch, pairs, task=task, limits=LIMITS, ledger=ledger)
        except ConditionalLogError as refusal:
            refused.append(refusal)
    if refused:
        raise refused_batch(log, job, batch, refused[0])
    complete_batch(log, plan, batch, results)


def rows_held(results: Sequence[PartitionResult]) -> Mapping[int, int]:
    """Return by partition the number of rows of the batch that were already in the log."""
    return {result.progress.partition: result.resumed_rows or 0 for result in results}
