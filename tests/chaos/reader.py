"""A client that follows all partitions. It records the end offsets it saw and a running digest of the records.

``python -m tests.chaos.reader WORLD NAME SEED``; it ends when the world's file ``stop`` exists.
"""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from spark_cas.core.errors import ConditionalLogError
from spark_cas.core.offsets import OffsetRange
from spark_cas.log.backend import Backend
from tests.chaos.world import World
from tests.history.operations import INFO, OK
from tests.history.recorder import Recorder
from tests.history.records import Found, Record, chained
from tests.support.faults import InjectedFaultError


class Reader:
    """The reads of one reader. It resumes at its last end offsets; a restarted process begins at the start."""

    def __init__(self, log: Backend, world: World, recorder: Recorder) -> None:
        self._log = log
        self._world = world
        self._recorder = recorder
        self._known: dict[int, tuple[int, int, int]] = {}

    def run(self, stopped: Callable[[], bool]) -> None:
        """Read repeatedly until it is stopped."""
        while not stopped():
            number, began = self._recorder.start("read", {}), time.monotonic()
            try:
                self._known = self._read()
            except ConditionalLogError as error:
                self._recorder.finish(number, INFO, {"kind": str(error.kind), "told": error.message})
            except InjectedFaultError:
                self._recorder.finish(number, INFO, {"kind": "LOST"})
            else:
                self._recorder.finish(number, OK, {"seen": {str(at): each for at, each in self._known.items()}})
            # The reader spends at least half of the time in reads, so that it is often killed within one.
            time.sleep(max(self._world.pace, time.monotonic() - began))

    def _read(self) -> dict[int, tuple[int, int, int]]:
        partitions = range(self._log.layout().partitions)
        seen = {}
        for at, bounds in zip(partitions, self._log.bounds_of(partitions, waiting=True), strict=True):
            end, count, digest = self._known.get(at, (0, 0, 0))
            for found in records_of(self._log, at, OffsetRange(end, max(end, bounds.end_offset))):
                count, digest = count + 1, chained(digest, found)
            # Record the end offset as reported. If it is lower than the records already seen, the digest does not
            # match.
            seen[at] = bounds.end_offset, count, digest
        return seen


def records_of(log: Backend, partition: int, offsets: OffsetRange) -> Iterator[Found]:
    """Yield the records of a range. A record without a value becomes one with an empty value."""
    for base, batch in log.read(partition, offsets, ("key", "value")) if len(offsets) else ():
        for at, row in enumerate(batch.to_pylist()):
            yield Found(base + at, Record(row["key"].decode(), (row["value"] or b"").decode()))


def main(folder: str, name: str, _seed: str) -> None:
    """Read until the world stops."""
    world = World.read(Path(folder))
    with Recorder(world.history / f"{name}.jsonl", name) as recorder, world.open(name) as log:
        Reader(log, world, recorder).run(world.stopped())


if __name__ == "__main__":
    main(*sys.argv[1:])
