"""Verify that a claim is still the newest: commit a transaction that rewrites the ledger entry and moves no offset.

The coordinator commits it only for the newest producer of the transactional id, and only if its replicas agree. So no
newer claim exists.
"""

from confluent_kafka import KafkaException

from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Appended, Fenced, Outcome
from spark_cas.log.kafka.append.attempt import Attempt
from spark_cas.log.kafka.append.fence import Fence
from spark_cas.log.kafka.append.placement import Landed


def prove(fence: Fence, attempt: Attempt) -> Outcome:
    """Return `Appended` if the transaction commits. Otherwise return `Fenced`, for any reason.

    A new producer is not tried, because it would fence other writers itself.

    Raises:
        StorageError: The brokers did not answer.
    """
    if not fence.is_clean:
        return Fenced(None)
    fence.mark_used()
    end_offset = attempt.claim.end_offset
    try:
        shown = isinstance(attempt.prepare(Bounds(0, end_offset)), Landed)
        if shown:
            fence.instance.commit()
    except KafkaException:
        shown = False
    if not shown:
        fence.give_way()
        return Fenced(None)
    at = OffsetRange(end_offset, end_offset)
    return Appended(at, 0, None, 0, has_offset=True, resolved=False)
