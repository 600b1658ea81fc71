"""Find out whether a commit whose reply was lost took place: read the ledger after the transaction has ended."""

from spark_cas.core.errors import ConditionalLogError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Fenced, Unknown
from spark_cas.log.kafka.append.attempt import Attempt
from spark_cas.log.kafka.append.checks import Checks, fenced_since
from spark_cas.log.kafka.append.placement import Landed
from spark_cas.log.kafka.offsets import end_offsets


def resolve(attempt: Attempt, sent: Landed, *, fenced: bool) -> Bounds | Fenced | Unknown | None:
    """Return the bounds of the partition if the commit took place, None if it did not and may be retried.

    Args:
        attempt: The transaction whose commit had no reply.
        sent: The offsets of its records.
        fenced: Whether the commit was rejected because a newer writer holds the fence. The instance is unusable in
            either case.

    Returns:
        `Fenced` if another writer of the job changed the ledger entry, and Unknown if the ledger cannot be read.
    """
    checks, claim, chunk = attempt.checks, attempt.claim, attempt.chunk
    try:
        if not fenced:
            # A new instance aborts or completes the transaction of the old one. If fenced, the newer writer has done
            # that.
            attempt.fence.put_up_patiently()
        progress = checks.progress()
        bounds = end_offsets.bounds_to_high_watermark(checks.admin, checks.at)
        # Require an exact match, because another attempt at the same chunk leaves the same rows at other offsets. An
        # entry that differs may be older than the commit.
        if progress == claim.progress_after(chunk, sent.at) or _is_visible(checks, sent, chunk.records.num_rows):
            return bounds
    except ConditionalLogError:
        return Unknown("the reply to the commit was lost, and the ledger could not be read")
    return fenced_since(progress, claim.progress)


def _is_visible(checks: Checks, sent: Landed, rows: int) -> bool:
    """Return whether a committed record is at the offsets of these records.

    Offsets are never reused, so it is one of them.

    If no offset was checked, records of others may be between these. Then only the first and the last offset are
    certain.
    """
    if not rows:
        return False
    first, end = sent.at.base_offset, sent.at.end_offset
    ours = [sent.at] if len(sent.at) == rows else [OffsetRange(first, first + 1), OffsetRange(end - 1, end)]
    return any(checks.has_record(each) for each in ours)
