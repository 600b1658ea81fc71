"""The records that `append_once` appends to a partition: one chunk with all rows of the job there."""

from collections.abc import Mapping

import pyarrow as pa

from spark_cas.core.chunks import Chunk
from spark_cas.core.digest import RunningDigest
from spark_cas.core.errors import InputChangedError
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.outcome import Appended
from spark_cas.core.plan import PartitionResult, Plan, Progress
from spark_cas.core.records import RECORDS
from spark_cas.core.row_claims import NO_CHECK, check_claim_values
from spark_cas.log import clock
from spark_cas.log.backend import Backend
from spark_cas.log.load.planning import complete_job


def chunk_of(records: pa.Table, task: str) -> Chunk:
    """Return records as the only chunk of a job.

    Raises:
        ValueError: The schema is not `RECORDS`, or there are no records.
    """
    if records.num_rows == 0 or not records.schema.equals(RECORDS):
        msg = (
            f"append_once takes at least one record in the schema spark_cas.RECORDS, got {records.num_rows} with "
            f"columns {', '.join(records.schema.names)}"
        )
        raise ValueError(msg)
    digest = RunningDigest()
    for batch in records.to_batches():
        digest.update(batch)
    return Chunk(
        records=records,
        rows=records.num_rows,
        digest=digest.hexdigest(),
        complete=True,
        task=task,
        time_ms=clock.now_ms(),
    )


def checked_offset(expected_offset: int | None) -> int | None:
    """Return an expected offset, None for -1; raise ExpectedOffsetError below -1."""
    if expected_offset is not None:
        check_claim_values(pa.array([expected_offset], pa.int64()), 0)
    return None if expected_offset == NO_CHECK else expected_offset


def same_as(progress: Progress, chunk: Chunk) -> bool:
    """Return whether a ledger entry describes exactly this chunk."""
    return (progress.rows, progress.digest, progress.complete) == (chunk.rows, chunk.digest, True)


def existing_result(
    log: Backend, plan: Plan, before: tuple[Progress, ...], chunks: Mapping[int, Chunk]
) -> dict[int, Appended]:
    """Return the appends of an earlier call, by partition, and complete the job.

    The earlier call may have crashed before it recorded the completion. If the log holds other rows, the function
    must not complete the job, because a load of that name would never append its remaining rows.

    Raises:
        InputChangedError: The job appended other records, or to other partitions.
    """
    held = {each.partition: each for each in before}
    if held.keys() != chunks.keys() or not all(same_as(held[each], chunk) for each, chunk in chunks.items()):
        message = ", ".join(f"{each.rows} in partition {each.partition}" for each in before)
        raise InputChangedError(
            f"job {plan.job!r} appended other records before, or the same to another partition: the log holds "
            f"{message}. Nothing was appended now. Another append needs a job name of its own, under which these "
            f"would be appended again.",
            job=plan.job,
        )
    completion = complete_job(log, plan, tuple(PartitionResult(each, each.rows, 0) for each in before))
    return {each.progress.partition: _existing(log, each) for each in completion.partitions}


def _existing(log: Backend, result: PartitionResult) -> Appended:
    existing = result.progress
    return Appended(
        range=OffsetRange(existing.base_offset, existing.end_offset),
        count=existing.rows,
        timestamp_ms=result.appends.timestamp_ms,
        start_offset=log.bounds(existing.partition).start_offset,
        has_offset=True,
        resolved=True,
    )
