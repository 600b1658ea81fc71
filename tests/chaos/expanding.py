"""A fault that adds a partition in the middle of a run.

It ends by itself; the end of the run resumes a failed expansion.
"""

import random
from collections.abc import Callable

from spark_cas.log.backend import Backend
from spark_cas.log.expanding import expand_log
from tests.chaos.beside import Beside
from tests.chaos.faults import Undo

MOST_PARTITIONS = 5


class Expand:
    """Add one partition to the log, until it has `MOST_PARTITIONS`."""

    def __init__(self, open_: Callable[[], Backend]) -> None:
        self._open = open_
        self._beside = Beside(open_)

    def begin(self, chance: random.Random, seconds: float) -> tuple[str, Undo] | None:
        return self._beside.begin("log", _expand)

    def finish(self) -> None:
        """Complete a pending expansion, because the log locks no claim until then."""
        self._beside.finish()
        with self._open() as log:
            pending = log.layouts().pending
            if pending is not None:
                expand_log(log, pending.partitions)


def _expand(log: Backend) -> None:
    partitions = log.layout().partitions
    if partitions < MOST_PARTITIONS:
        pending = log.layouts().pending
        expand_log(log, pending.partitions if pending else partitions + 1)
