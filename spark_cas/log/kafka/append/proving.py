"""Showing that a claim is still the newest: a transaction with the ledger entry that is there, which moves no offset.

Its coordinator commits it for the newest instance of the id alone, and together with its replicas. So no other claim
came before it, where the end that one broker tells may be that of a broker that was deposed and does not know it.
"""

from confluent_kafka import KafkaException

from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Appended, Fenced, Outcome
from spark_cas.log.kafka.append.attempt import Attempt
from spark_cas.log.kafka.append.fence import Fence
from spark_cas.log.kafka.append.placement import Landed


def prove(fence: Fence, attempt: Attempt) -> Outcome:
    """`Fenced` unless it is shown, whatever the reason: an instance that was made anew would fence others itself.

    Raises StorageError.
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
