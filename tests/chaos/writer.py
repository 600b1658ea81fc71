"""A client that appends in all possible ways, and retries appends whose result is unknown.

``python -m tests.chaos.writer WORLD NAME SEED``; it ends when the world's file ``stop`` exists.
"""

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spark_cas.core.errors import ConditionalLogError
from spark_cas.log.backend import Backend
from tests.chaos.asking import ask
from tests.chaos.loading import Told
from tests.chaos.world import World
from tests.history.check_log import CHANGED
from tests.history.jobs import jobs_of
from tests.history.operations import INFO, OK, read_history
from tests.history.recorder import Recorder
from tests.support.faults import InjectedFaultError

KEYS = 5
"""Few keys, so that appends with an expected offset for a key often conflict."""
CHUNK_RECORDS = 2
_TRIES = 4
_PAUSE_SECONDS = 0.3
_CHANGED_SHARE = 0.1
_BLIND_SHARE = 0.5
_LOCKED_SHARE = 0.7
"""The share of loads that acquire the load lock."""


def is_for_two(job: str) -> bool:
    """Return whether other clients may duplicate this append: every second job.

    The other jobs belong to their writer alone. If it gets a wrong response, no other attempt can make that response
    true.
    """
    return int(job.rpartition("-")[2]) % 2 == 0


class Writer:
    """The operations of one writer. Its history is its only state, and survives a restart of the process."""

    LOOK_SHARE = 0.6
    """The share of appends before which it reads the end offsets."""

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
        """Retry the appends without a known result, then append until it is stopped."""
        for job in self._jobs.values():
            if job.attempts[-1].outcome == INFO:
                self.ask(dict(job.attempts[-1].arguments), _TRIES)
        while not stopped():
            try:
                self._read()
                arguments = self.next_append()
            except (ConditionalLogError, InjectedFaultError):
                # Nothing has been sent yet. The end of the run detects a permanent failure.
                time.sleep(self._world.pace)
                continue
            if self.ask(arguments, _TRIES):
                self.acknowledged(arguments)
            time.sleep(self._chance.uniform(0, 2 * self._world.pace))

    def ask(self, arguments: dict[str, Any], tries: int) -> bool:
        """Append, and retry while the result is unknown; return whether the append was acknowledged."""
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
        """Append and return the result. ``run`` is the name of this attempt."""
        return ask(self._log, arguments, run)

    def acknowledged(self, arguments: dict[str, Any]) -> None:
        """Sometimes repeat an acknowledged append with other records."""
        if self._chance.random() < _CHANGED_SHARE:
            self.ask_for_others(arguments)

    def ask_for_others(self, arguments: dict[str, Any]) -> None:
        """Repeat an append with one changed value."""
        rows = {at: [list(row) for row in each] for at, each in arguments["records"].items()}
        self._chance.choice(list(rows.values()))[-1][1] += "'"
        changed = {**arguments, "records": rows}
        number = self._recorder.start(CHANGED, changed)
        self._recorder.finish(number, *self.told(changed, f"{self._recorder.process}.{number}"))

    def _read(self) -> None:
        """Read the end offsets, or keep the known ones, which may be old."""
        partitions = self._log.layout().partitions
        if len(self._ends) != partitions or self._chance.random() < self.LOOK_SHARE:
            bounds = self._log.bounds_of(range(partitions), waiting=True)
            self._ends = {at: each.end_offset for at, each in enumerate(bounds)}

    def next_append(self) -> dict[str, Any]:
        """Return the arguments of an append under a new job."""
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
        # One partition of an atomic append may have an expected offset but no records.
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
            # The exit of a process releases its load lock. A thread has no separate process.
            "locked": way == "load" and bool(self._world.address) and self._chance.random() < _LOCKED_SHARE,
        }


def main(folder: str, name: str, seed: str) -> None:
    """Write until the world stops."""
    world = World.read(Path(folder))
    with Recorder(world.history / f"{name}.jsonl", name) as recorder, world.open(name) as log:
        Writer(log, world, recorder, int(seed)).run(world.stopped())


if __name__ == "__main__":
    main(*sys.argv[1:])
