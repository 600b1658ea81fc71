"""Check whether an expected offset matches a partition whose transaction markers use offsets (design rule 3)."""

from confluent_kafka import TopicPartition

from spark_cas.core.expected_offsets import check_expected
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Refusal
from spark_cas.core.plan import Progress
from spark_cas.log import clock
from spark_cas.log.deadline import Wait
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.readers import Readers
from spark_cas.log.kafka.offsets import end_offsets
from spark_cas.log.kafka.offsets.reading import OvertakenError, first_record
from spark_cas.log.kafka.topic.topic_settings import topic_settings


def check_gap(
    readers: Readers,
    admin: Admin,
    at: TopicPartition,
    expected: int | None,
    bounds: Bounds,
    *,
    progress: Progress | None,
) -> Refusal | None:
    """Check an expected offset. It matches the end, and a lower offset if no committed record follows it.

    ``progress`` is the ledger entry that the claim is based on.
    """
    wait = Wait(admin.patience_seconds, f"reading the next record of partition {at.partition} of topic {at.topic}")
    while expected is not None and bounds.start_offset <= expected < bounds.end_offset:
        try:
            next_record = _next_record(readers, admin, at, progress, OffsetRange(expected, bounds.end_offset))
        except OvertakenError:
            if not wait.again("records were removed meanwhile"):
                raise
            bounds = _trimmed(admin, at, bounds)
        else:
            # An empty gap matches only if none of its records was trimmed during the read.
            return check_expected(expected, _trimmed(admin, at, bounds), next_record)
    return check_expected(expected, bounds, None)


def _trimmed(admin: Admin, at: TopicPartition, bounds: Bounds) -> Bounds:
    """Return the remaining part of the bounds after a trim."""
    start = end_offsets.start_offset(admin, at)
    return Bounds(start, max(start, bounds.end_offset))


def _next_record(
    readers: Readers, admin: Admin, at: TopicPartition, progress: Progress | None, gap: OffsetRange
) -> int | None:
    """Return the offset of the first record that is or may have been in a gap. None if there never was one.

    Compaction removes tombstones after a while. So in a compacted topic, an empty gap is conclusive only if the
    expected offset is more recent than that. This is known only for the offset that the job's own last chunk left.
    """
    result = first_record(readers, at, gap)
    if result is not None:
        return result
    settings = topic_settings(admin, at.topic)
    if settings is not None and not settings.compacted:
        return None
    if settings is None or progress is None or gap.base_offset < progress.end_offset:
        return gap.base_offset
    age_ms = clock.now_ms() - progress.committed_at_ms
    return None if age_ms < settings.delete_retention_ms // 2 else gap.base_offset
