"""A fault that aborts an atomic load while its writer is running, as ``spark-cas abort`` does."""

import random
from collections.abc import Callable
from pathlib import Path

from spark_cas.log.backend import Backend
from spark_cas.log.load.atomic_load import abort_left
from tests.chaos.beside import Beside
from tests.chaos.faults import Undo
from tests.chaos.tails import lines_from_end


class AbortWhole:
    """Abort the newest append over several partitions in a client's history, unless its outcome is decided."""

    def __init__(self, history: Path, open_: Callable[[], Backend], clients: str = "w*") -> None:
        self._history = history
        self._files = f"{clients}.jsonl"
        self._beside = Beside(open_)

    def begin(self, chance: random.Random, seconds: float) -> tuple[str, Undo] | None:
        jobs = list(filter(None, map(_newest_whole, sorted(self._history.glob(self._files)))))
        if not jobs:
            return None
        job = chance.choice(jobs)
        return self._beside.begin(job, lambda log: abort_left(log, job))

    def finish(self) -> None:
        """Wait for the last abort."""
        self._beside.finish()


def _newest_whole(file: Path) -> str | None:
    """Return the newest job in a history that appends to several partitions atomically.

    Only the end of the file is read.
    """
    for line in lines_from_end(file):
        asked = line.get("arguments", {})
        if len(asked.get("expected", {})) > 1 and asked["chunk_records"] is None:
            return str(asked["job"])
    return None
