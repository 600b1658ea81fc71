"""A client that appends in all the ways there are, and asks again for what it did not hear the end of.

``python -m tests.chaos.writer WORLD NAME SEED``; it ends when the world's file ``stop`` is there.
"""

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spark_cas.core.errors import ConditionalLogError
from spark_cas.log.backend import Backend
from spark_cas.testing.faults import InjectedFaultError
from spark_cas.testing.history import CHANGED, INFO, OK, Recorder, read_history
from spark_cas.testing.history.jobs import jobs_of
from tests.chaos.asking import ask
from tests.chaos.loading import Told
from tests.chaos.world import World

KEYS = 5
"""Few, so that those who expect something of a key meet others with the same."""
CHUNK_RECORDS = 2
_TRIES = 4
_PAUSE_SECONDS = 0.3
_CHANGED_SHARE = 0.1
_BLIND_SHARE = 0.5
_GRANTED_SHARE = 0.7
"""Of loads."""


def is_for_two(job: str) -> bool:
    """Every other job is its writer's alone: no other attempt makes true what that one is told in error."""
    return int(job.rpartition("-")[2]) % 2 == 0


class Writer:
    """What one writer does; its history is its memory, also of the process before."""

    LOOK_SHARE = 0.6
    """How often it learns anew where partitions end before it appends."""

    def __init__(self, log: Backend, world: World, recorder: Recorder, seed: int) -> None:
        self._log = log
        self._world = world
        self._recorder = recorder
        before = [each for each in read_history(world.history) if each.process == recorder.process]
        self._jobs = jobs_of(before)
        self._count = len(self._jobs)
        self._chance = random.Random(f"{seed}/{recorder.process}/{len(before)}")
        self._ends: dict[int, int] = {}

    def run(self, stopped: Callable[[], bool]) -> None:
        """Ask again for what is open, then go on until it is stopped."""
        for job in self._jobs.values():
            if job.attempts[-1].outcome == INFO:
                self.ask(dict(job.attempts[-1].arguments), _TRIES)
        while not stopped():
            try:
                self._look()
                arguments = self.next_append()
            except (ConditionalLogError, InjectedFaultError):
                # Nothing was asked for yet. What fails for ever is found at the end.
                time.sleep(self._world.pace)
                continue
            if self.ask(arguments, _TRIES):
                self.acknowledged(arguments)
            time.sleep(self._chance.uniform(0, 2 * self._world.pace))

    def ask(self, arguments: dict[str, Any], tries: int) -> bool:
        """Append, trying again what is not known; whether it was acknowledged."""
        for _ in range(tries):
            number = self._recorder.start("append", arguments)
            event, result = self.told(arguments, f"{self._recorder.process}.{number}")
            self._recorder.finish(number, event, result)
            if event == OK:
                self._ends |= {int(at): end for at, (_, end) in result["ranges"].items()}
            fenced = result.get("kind") == "FENCED" and is_for_two(arguments["job"])
            if event != INFO and not (fenced and self._chance.random() < 0.5):
                return event == OK
            time.sleep(self._chance.uniform(0, _PAUSE_SECONDS))
        return False

    def told(self, arguments: dict[str, Any], run: str) -> Told:
        """Append; what came of it. ``run`` is the name of this attempt."""
        return ask(self._log, arguments, run)

    def acknowledged(self, arguments: dict[str, Any]) -> None:
        """Now and then, ask once more for an append that was acknowledged."""
        if self._chance.random() < _CHANGED_SHARE:
            self.ask_for_others(arguments)

    def ask_for_others(self, arguments: dict[str, Any]) -> None:
        """Ask for an append again, with one value that is another."""
        rows = {at: [list(row) for row in each] for at, each in arguments["records"].items()}
        self._chance.choice(list(rows.values()))[-1][1] += "'"
        changed = {**arguments, "records": rows}
        number = self._recorder.start(CHANGED, changed)
        self._recorder.finish(number, *self.told(changed, f"{self._recorder.process}.{number}"))

    def _look(self) -> None:
        """Learn where partitions end, or go on with what is known, which may be old."""
        partitions = self._log.layout().partitions
        if len(self._ends) != partitions or self._chance.random() < self.LOOK_SHARE:
            bounds = self._log.bounds_of(range(partitions), waiting=True)
            self._ends = {at: each.end_offset for at, each in enumerate(bounds)}

    def next_append(self) -> dict[str, Any]:
        """The arguments of an append under a new job."""
        self._count += 1
        job = f"{self._recorder.process}-{self._count}"
        partitions = sorted(self._ends)
        [way] = self._chance.choices(["single", "blind", "key", "whole", "load"], [35, 10, 10, 20, 25])
        several = way == "whole" and len(partitions) > 1
        count = self._chance.randint(2, min(3, len(partitions))) if several else 1
        chosen = self._chance.sample(partitions, count)
        expected: dict[int, int | None] = {at: self._ends[at] for at in chosen}
        if way == "blind" or (way == "load" and self._chance.random() < _BLIND_SHARE):
            expected = dict.fromkeys(chosen)
        # A partition of a whole may be one that only an offset is expected of.
        written = chosen[:-1] if several and count > 2 else chosen
        rows = self._chance.randint(3, 12) if way == "load" else self._chance.randint(1, 3)
        return {
            "job": job,
            "records": {
                str(at): [[f"k{self._chance.randrange(KEYS)}", f"{job}/{at}/{row}"] for row in range(rows)]
                for at in written
            },
            "expected": {str(at): offset for at, offset in expected.items()},
            "compare": "key" if way == "key" else "partition",
            "chunk_records": CHUNK_RECORDS if way == "load" else None,
            # A process tells by its end that its grant is for others; a thread has none of its own.
            "granted": way == "load" and bool(self._world.address) and self._chance.random() < _GRANTED_SHARE,
        }


def main(folder: str, name: str, seed: str) -> None:
    """Write until the world stops."""
    world = World.read(Path(folder))
    with Recorder(world.history / f"{name}.jsonl", name) as recorder, world.open(name) as log:
        Writer(log, world, recorder, int(seed)).run(world.stopped())


if __name__ == "__main__":
    main(*sys.argv[1:])
