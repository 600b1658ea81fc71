"""One conditional append without a load around it: for programs that write a log themselves."""

import time
from dataclasses import replace
from typing import Literal

import pyarrow as pa

from spark_cas.core.appends import NOTHING_SAID
from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.digest import RunningDigest
from spark_cas.core.errors import InputChangedError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.key_claims import check_keys
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.outcome import Appended, Outcome
from spark_cas.core.plan import PartitionResult, Plan, Progress
from spark_cas.core.records import RECORDS
from spark_cas.core.row_claims import NO_CHECK, check_claim_values
from spark_cas.log.load.append_by_key import KeyedAppends
from spark_cas.log.load.planning import complete_job, job_progress, pin_plan
from spark_cas.log.protocol import Backend


def append_once(
    log: Backend,
    partition: int,
    records: pa.Table,
    *,
    job: str,
    expected_offset: int | None,
    compare: Literal["partition", "key"] = "partition",
) -> Outcome:
    """Append records to one partition, whole and once, at the expected offset, or leave nothing visible (KIP-27).

    ``records`` is in `spark_cas.RECORDS` and not empty; it is the whole of ``job``, whose name makes the append
    safe to ask for again: a second call with the same records finds the first and says `Appended` with
    ``resolved``. ``expected_offset`` None, or -1, asks for no check. On success go on with ``range.end_offset``.
    With ``compare="key"`` the offset is expected of the records' keys: nothing happened to any of them since.

    Raises ValueError for another schema, no records, or a partition that the log does not have; ClaimError for an
    offset below -1, and where a record without a key is to expect something of it; InputChangedError
    when the job appended other records; whatever planning, claiming and appending raise.
    """
    if records.num_rows == 0 or not records.schema.equals(RECORDS):
        msg = (
            f"append_once takes at least one record in the schema spark_cas.RECORDS, got {records.num_rows} with "
            f"columns {', '.join(records.schema.names)}"
        )
        raise ValueError(msg)
    if expected_offset is not None:
        check_claim_values(pa.array([expected_offset], pa.int64()), 0)
    expected_offset = None if expected_offset == NO_CHECK else expected_offset
    log.layout().require(partition)
    digest = RunningDigest()
    for batch in records.to_batches():
        digest.update(batch)
    wanted = ExpectedOffsets("offsets", ((partition, expected_offset),))
    plan = pin_plan(log, job, wanted, compare=compare, any_layout=True)
    before = job_progress(log, job)
    if before:
        return _found(log, plan, before, partition, digest)
    claim = log.claim(partition, plan)
    if not isinstance(claim, Claim):
        return claim
    chunk = Chunk(
        records=records,
        rows=records.num_rows,
        digest=digest.hexdigest(),
        complete=True,
        task=job,
        time_ms=time.time_ns() // 1_000_000,
    )
    if plan.by_key and expected_offset is not None:
        claims = pa.repeat(pa.scalar(expected_offset, pa.int64()), records.num_rows)
        check_keys(records.column("key").combine_chunks(), claims, 0)
        chunk = replace(chunk, claims=claims)
    if plan.by_key:
        outcome, claim = KeyedAppends(log, partition).append(claim, chunk)
    else:
        outcome = log.append(claim, chunk)
    if isinstance(outcome, Appended):
        progress = claim.progress_after(chunk, outcome.range)
        result = PartitionResult(progress, 0, int(outcome.resolved), NOTHING_SAID.and_then(outcome))
        complete_job(log, plan, (result,))
    return outcome


def _found(log: Backend, plan: Plan, before: tuple[Progress, ...], partition: int, digest: RunningDigest) -> Appended:
    """The append that an earlier call made, which may have died before it recorded that the job is complete.

    Progress of anything else must not be completed here: a load of that name would never append the rest.
    """
    wanted = [(partition, digest.rows, digest.hexdigest(), True)]
    if [(each.partition, each.rows, each.digest, each.complete) for each in before] != wanted:
        held = ", ".join(f"{each.rows} in partition {each.partition}" for each in before)
        raise InputChangedError(
            f"job {plan.job!r} appended other records before, or the same to another partition: the log holds "
            f"{held}. Nothing was appended now. Another append needs a job name of its own, under which these would "
            f"be appended again."
        )
    completion = complete_job(log, plan, (PartitionResult(before[0], before[0].rows, 0),))
    result = completion.partitions[0]
    found = result.progress
    return Appended(
        range=OffsetRange(found.base_offset, found.end_offset),
        count=found.rows,
        timestamp_ms=result.appends.timestamp_ms,
        start_offset=log.bounds(partition).start_offset,
        has_offset=True,
        resolved=True,
    )
