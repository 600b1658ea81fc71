"""How young a claim about a key must be on a log that compacts deletions away."""

from spark_cas.core.offsets import OffsetRange
from spark_cas.core.records import first_since
from spark_cas.log.backend import Backend

_CLOCKS_DIFFER_MS = 60_000


def unproven_below(
    log: Backend, partition: int, end_offset: int, now_ms: int, *, pinned_at_ms: int, pinned_end: int
) -> int:
    """Below which offset a claim may be so old that a key's deletion, made since, was itself removed.

    A claim is young when a record in front of it is; or when it is not below ``pinned_end``, where the partition
    ended at ``pinned_at_ms``, and that is young. Half of the time that deletions are kept is young, for clocks
    differ. Raises what the log does.
    """
    kept_ms = log.tombstones_kept_ms()
    if kept_ms is None:
        return 0
    young = log.offset_since(partition, now_ms - kept_ms // 2)
    if young is not None and _ahead(log, partition, young, end_offset, now_ms):
        young = None
    below = end_offset if young is None else young + 1
    return min(below, pinned_end) if now_ms - pinned_at_ms < kept_ms // 2 else below


def _ahead(log: Backend, partition: int, offset: int, end_offset: int, now_ms: int) -> bool:
    """Whether the record at an offset is stamped ahead of now, so that it shows nothing of when it was written."""
    if offset >= end_offset:
        return False
    for base, records in log.read(partition, OffsetRange(offset, end_offset), ("timestamp",)):
        return base == offset and first_since(records.slice(0, 1), now_ms + _CLOCKS_DIFFER_MS) is not None
    return False
