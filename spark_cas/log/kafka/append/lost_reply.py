"""What became of a commit whose reply was lost: the ledger tells, read once the transaction is decided."""

from spark_cas.core.errors import ConditionalLogError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Fenced, Unknown
from spark_cas.log.kafka import ends
from spark_cas.log.kafka.append.attempt import Attempt
from spark_cas.log.kafka.append.checks import Checks, taken_over
from spark_cas.log.kafka.append.placement import Landed
from spark_cas.log.kafka.reading import first_record


def resolve(attempt: Attempt, sent: Landed, *, fenced: bool) -> Bounds | Fenced | Unknown | None:
    """The bounds of the partition when the commit took place, None when it did not and may be tried again.

    ``fenced`` says that the commit was refused because a successor holds the fence, which is down in either case.
    """
    checks, claim, chunk = attempt.checks, attempt.claim, attempt.chunk
    try:
        if not fenced:
            # A new instance ends what the old one left undecided. A fenced one has a successor that did.
            attempt.fence.put_up_patiently()
        progress = checks.progress()
        bounds = ends.bounds_to_high_watermark(checks.admin, checks.at)
        # To the letter: another attempt at the same chunk leaves the same rows elsewhere. And the ledger may have
        # been told by a coordinator that was deposed and does not know it yet.
        if progress == claim.progress_after(chunk, sent.at) or _is_visible(checks, sent, chunk.records.num_rows):
            return bounds
    except ConditionalLogError:
        return Unknown("the reply to the commit was lost, and the ledger could not be read")
    return taken_over(progress, claim.progress)


def _is_visible(checks: Checks, sent: Landed, rows: int) -> bool:
    """Whether a committed record lies where ours were sent: offsets are given once, so it is ours.

    Without a check others' records may lie among ours, of which then only the first and the last have a known place.
    """
    if not rows:
        return False
    checks.barrier()
    first, end = sent.at.base_offset, sent.at.end_offset
    ours = [sent.at] if len(sent.at) == rows else [OffsetRange(first, first + 1), OffsetRange(end - 1, end)]
    return any(first_record(checks.readers, checks.at, each) is not None for each in ours)
