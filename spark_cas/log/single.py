"""One conditional append without a load around it: for programs that write a log themselves."""

import time

import pyarrow as pa

from spark_cas.core.chunks import Chunk
from spark_cas.core.digest import RunningDigest
from spark_cas.core.errors import InputChangedError
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.outcome import Appended, Outcome
from spark_cas.core.plan import ExpectedOffsets, Progress
from spark_cas.core.records import RECORDS
from spark_cas.log.planning import pin_plan
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
    plan = pin_plan(log, job, ExpectedOffsets("offsets", ((partition, expected_offset),)))
    claim = log.claim(partition, plan)
    if not isinstance(claim, Claim):
        return claim
    digest = RunningDigest()
    for batch in records.to_batches():
        digest.update(batch)
    if claim.progress is not None:
        return _found(claim.progress, digest, log.bounds(partition).start_offset)
    return log.append(
        claim,
        Chunk(
            records=records,
            rows=records.num_rows,
            digest=digest.hexdigest(),
            complete=True,
            task=job,
            time_ms=time.time_ns() // 1_000_000,
        ),
    )


def _found(progress: Progress, digest: RunningDigest, start_offset: int) -> Appended:
    """The append that an earlier call made."""
    if (progress.rows, progress.digest) != (digest.rows, digest.hexdigest()):
        raise InputChangedError(
            f"partition {progress.partition}: job {progress.job!r} appended other records before. Nothing was "
            f"appended now. Use another job name for another append."
        )
    return Appended(
        range=OffsetRange(progress.base_offset, progress.end_offset),
        count=progress.rows,
        timestamp_ms=progress.committed_at_ms,
        start_offset=start_offset,
        has_offset=True,
        resolved=True,
    )
