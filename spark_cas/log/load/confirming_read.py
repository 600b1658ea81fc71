"""Confirm apparent data loss with repeated reads, because a stale leader may report an old end offset."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from spark_cas.core.outcome import Truncated
from spark_cas.log import timing
from spark_cas.log.backend import Backend

_PAUSES = (0.05, 0.15, 0.3, 0.5)
"""The pauses before the reads, as shares of the time in which a demoted leader learns that it is one."""

Value = TypeVar("Value")


def confirmed(
    log: Backend, result: Mapping[int, Value], read: Callable[[Sequence[int]], Mapping[int, Value]]
) -> dict[int, Value]:
    """Return the results for partitions, and confirm each `Truncated` with repeated reads.

    The reads cover all such partitions together and take about one second at most. Each read requests the current
    leaders.

    Args:
        log: The log.
        result: The first result of each partition.
        read: Reads the given partitions and returns new results.
    """
    result = dict(result)
    for pause in _PAUSES:
        lost = [partition for partition, each in result.items() if isinstance(each, Truncated)]
        if not lost:
            break
        time.sleep(pause * timing.current().metadata_lag)
        log.forget_leaders()
        result |= read(lost)
    return result
