"""That records are gone is said after more than one look: who was just deposed says where a log ended then."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from spark_cas.core.outcome import Truncated
from spark_cas.log.backend import Backend

_PAUSES_SECONDS = (0.05, 0.15, 0.3, 0.5)

Found = TypeVar("Found")


def looked_again(
    log: Backend, found: Mapping[int, Found], look: Callable[[Sequence[int]], Mapping[int, Found]]
) -> dict[int, Found]:
    """What was found in partitions, or what a later look finds in those that are said to have lost records.

    All of them are looked at together, so it takes a second at most, and each look asks anew who leads them.
    """
    found = dict(found)
    for pause in _PAUSES_SECONDS:
        lost = [partition for partition, each in found.items() if isinstance(each, Truncated)]
        if not lost:
            break
        time.sleep(pause)
        log.forget_leaders()
        found |= look(lost)
    return found
