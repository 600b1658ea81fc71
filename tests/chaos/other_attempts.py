"""A client that duplicates the operations that writers have in progress.

Speculative execution in Spark does this, and so does a process that considers a frozen writer dead.

``python -m tests.chaos.other_attempts WORLD NAME SEED``; it ends when the world's file ``stop`` exists.
"""

import random
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from spark_cas.core.errors import ErrorKind
from spark_cas.log.backend import Backend
from tests.chaos.asking import ask
from tests.chaos.tails import under_way
from tests.chaos.world import World
from tests.chaos.writer import is_for_two
from tests.history.jobs import APPEND
from tests.history.operations import INFO
from tests.history.recorder import Recorder

_PACES = 2


class OtherAttempts:
    """The operations of one such client. Each attempt is a separate operation of the writer's job."""

    def __init__(self, log: Backend, world: World, recorder: Recorder, seed: int) -> None:
        self._log = log
        self._world = world
        self._recorder = recorder
        self._chance = random.Random(f"{seed}/{recorder.process}")
        self._orphaned = World.orphaned()

    def run(self, stopped: Callable[[], bool]) -> None:
        """Duplicate the operations in progress until it is stopped."""
        while not stopped():
            writers = sorted(self._world.history.glob("w*.jsonl"))
            asked = [each for file in writers if (each := under_way(file, APPEND)) and is_for_two(each["job"])]
            if asked:
                self._attempt(self._chance.choice(asked))
            time.sleep(self._chance.uniform(0, 2 * _PACES * self._world.pace))

    def _attempt(self, arguments: Mapping[str, Any]) -> None:
        """Repeat the attempt until its result is known.

        The writer may have given up, and no other client completes an open load.

        Stop without a result if the log is damaged, or if the process that started this one has exited, and the
        brokers with it.
        """
        kind, result = INFO, dict[str, Any]()
        while kind == INFO and result.get("kind") != ErrorKind.CHUNK_DAMAGED and not self._orphaned():
            number = self._recorder.start(APPEND, arguments)
            kind, result = ask(self._log, arguments, f"{self._recorder.process}.{number}")
            self._recorder.finish(number, kind, result)


def main(folder: str, name: str, seed: str) -> None:
    """Run until the world stops."""
    world = World.read(Path(folder))
    with Recorder(world.history / f"{name}.jsonl", name) as recorder, world.open(name) as log:
        OtherAttempts(log, world, recorder, int(seed)).run(world.stopped())


if __name__ == "__main__":
    main(*sys.argv[1:])
