"""One conditional append without a load around it: for programs that write a log themselves."""

import time

import pyarrow as pa

from spark_cas.core.chunks import Chunk
from spark_cas.core.digest import RunningDigest
from spark_cas.core.errors import InputChangedError
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.outcome import Appended, Outcome
from spark_cas.core.plan import Completion, ExpectedOffsets, PartitionResult
from spark_cas.core.records import RECORDS
from spark_cas.log.planning import complete_job, pin_plan
from spark_cas.log.protocol import Backend, Claim


def append_once(log: Backend, partition: int, records: pa.Table, *, job: str, expected_offset: int | None) -> Outcome:
    """Append records to one partition, whole and once, at the expected offset, or leave nothing visible (KIP-27).

    ``records`` is in `spark_cas.RECORDS` and not empty; it is the whole of ``job``, whose name makes the append
    safe to ask for again: a second call with the same records finds the first and says `Appended` with
    ``resolved``. ``expected_offset`` None asks for no check. On success go on with ``range.end_offset``.

    Raises ValueError for another schema, no records, or a partition that the log does not have; InputChangedError
    when the job appended other records; whatever planning, claiming and appending raise.
    """
    if records.num_rows == 0 or not records.schema.equals(RECORDS):
        msg = (
            f"append_once takes at least one record in the schema spark_cas.RECORDS, got {records.num_rows} with "
            f"columns {', '.join(records.schema.names)}"
        )
        raise ValueError(msg)
    log.layout().require(partition)
    digest = RunningDigest()
    for batch in records.to_batches():
        digest.update(batch)
    before = log.completion(job)
    if before is not None:
        return _found(log, before, partition, digest)
    plan = pin_plan(log, job, ExpectedOffsets("offsets", ((partition, expected_offset),)))
    claim = log.claim(partition, plan)
    if not isinstance(claim, Claim):
        return claim
    if claim.progress is not None:
        completion = complete_job(log, plan, (PartitionResult(claim.progress, claim.progress.rows, 0),))
        return _found(log, completion, partition, digest)
    chunk = Chunk(
        records=records,
        rows=records.num_rows,
        digest=digest.hexdigest(),
        complete=True,
        task=job,
        time_ms=time.time_ns() // 1_000_000,
    )
    outcome = log.append(claim, chunk)
    if isinstance(outcome, Appended):
        progress = claim.progress_after(chunk, outcome.range)
        complete_job(log, plan, (PartitionResult(progress, 0, int(outcome.resolved)),))
    return outcome


def _found(log: Backend, completion: Completion, partition: int, digest: RunningDigest) -> Appended:
    """The append that an earlier call made: the registry keeps it for ever, also when its records are trimmed."""
    entries = [result.progress for result in completion.partitions]
    if [(each.partition, each.rows, each.digest) for each in entries] != [
        (partition, digest.rows, digest.hexdigest())
    ]:
        raise InputChangedError(
            f"job {completion.job!r} appended other records before, or the same to another partition. Nothing was "
            f"appended now. Use another job name for another append."
        )
    return Appended(
        range=OffsetRange(entries[0].base_offset, entries[0].end_offset),
        count=digest.rows,
        timestamp_ms=None,
        start_offset=log.bounds(partition).start_offset,
        has_offset=True,
        resolved=True,
    )
