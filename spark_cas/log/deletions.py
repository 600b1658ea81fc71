"""How young a claim about a key must be on a log that compacts deletions away."""

import time

from spark_cas.core.plan import Plan
from spark_cas.log.protocol import Backend


def unproven_below(log: Backend, partition: int, end_offset: int, plan: Plan | None = None) -> int:
    """Below which offset a claim may be so old that a key's deletion, made since, was itself removed.

    A claim is young when a record in front of it is; or when it is not below where the partition ended as a young
    ``plan`` was made. Half of the time that deletions are kept is young, for clocks differ. Raises what the log does.
    """
    kept_ms = log.tombstones_kept_ms()
    if kept_ms is None:
        return 0
    since_ms = time.time_ns() // 1_000_000 - kept_ms // 2
    young = log.offset_since(partition, since_ms)
    below = end_offset if young is None else young + 1
    if plan is not None and plan.pinned_at_ms > since_ms:
        below = min(below, plan.end_offsets[partition])
    return below
