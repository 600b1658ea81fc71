"""Check whether an expected offset is recent enough for a log that compacts deletions away."""

from spark_cas.log import timing
from spark_cas.log.backend import Backend


def unproven_below(
    log: Backend, partition: int, end_offset: int, now_ms: int, *, pinned_at_ms: int, pinned_end: int
) -> int:
    """Return the offset below which an expected offset may be too old to prove that its key was not deleted.

    Compaction removes a deletion after some time. An expected offset is young enough if a lower offset has a young
    timestamp. It is also young enough if it is at least ``pinned_end``, which was the partition's end at
    ``pinned_at_ms``, and that time is young. Young means at most half of the time for which the log keeps deletions,
    because clocks differ. A timestamp ahead of now proves nothing. Raises the errors of `Backend.dated_since`.
    """
    kept_ms = log.tombstones_kept_ms()
    if kept_ms is None:
        return 0
    young = log.dated_since(partition, now_ms - kept_ms // 2)
    ahead = young is not None and young[1] >= now_ms + 1000 * timing.current().clock_skew
    below = end_offset if young is None or ahead else young[0] + 1
    return min(below, pinned_end) if now_ms - pinned_at_ms < kept_ms // 2 else below
