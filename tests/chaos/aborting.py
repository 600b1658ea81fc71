"""Somebody takes a load as a whole for dead and ends it, as ``spark-cas abort`` does, while its writer is at work."""

import random
from collections.abc import Callable
from pathlib import Path

from spark_cas.log.backend import Backend
from spark_cas.log.load.whole_load import abort_left
from tests.chaos.beside import Beside
from tests.chaos.faults import Undo
from tests.chaos.tails import lines_from_end


class AbortWhole:
    """The newest append over several partitions that a history tells of is aborted, unless it is decided."""

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
        """Wait for the last one."""
        self._beside.finish()


def _newest_whole(file: Path) -> str | None:
    """The newest job of a history that appends to several partitions, as far as its end tells."""
    for line in lines_from_end(file):
        asked = line.get("arguments", {})
        if len(asked.get("expected", {})) > 1 and asked["chunk_records"] is None:
            return str(asked["job"])
    return None
