"""The load locks of a log: of loads that overlap and have expected offsets, one runs at a time.

All locks of a log are one small value. A load replaces it with a compare-and-swap, so all changes have one order.
Locks only keep cooperating loads from conflicts. The conditional append alone guarantees correctness.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from spark_cas.core.recorded_fields import from_fields, in_format

MOST_HELD = 8
"""The maximum number of locks on one log; further loads wait. The value must fit into a few kilobytes in Kafka."""

_MOST_RANGES = 8
_MOST_PARTITIONS = 1_000_000
"""More than any topic has. It limits the memory for the partitions of a lock."""
_MOST_AFTER = 4


@dataclass(frozen=True, slots=True)
class LoadLock:
    """A lock that lets one run of a load append to partitions with expected offsets."""

    job: str
    run: str
    """The run of the job that holds the lock. Only this run releases it."""
    ranges: tuple[tuple[int, int], ...]
    """The partitions, as half-open ranges."""
    process: str
    """The process of the run (`process_name` in `spark_cas.log.load.locking`); empty if it is not known. When it
    exits, the run is over."""
    granted_at_ms: int
    """Milliseconds since 1970."""
    after: tuple[str, ...] = ()
    """Jobs whose locks this one replaced. The load fences their writers before it plans."""
    batch_id: int | None = None
    """The micro-batch that holds the lock; None for a load."""

    def __post_init__(self) -> None:
        if not all(0 <= base < end <= _MOST_PARTITIONS for base, end in self.ranges):
            raise ValueError(f"expected ranges of partitions below {_MOST_PARTITIONS}")

    @property
    def partitions(self) -> frozenset[int]:
        return frozenset(each for base, end in self.ranges for each in range(base, end))

    @property
    def partitions_text(self) -> str:
        """The partitions as text, such as ``0 to 3, 7``."""
        return ", ".join(f"{base}" if end == base + 1 else f"{base} to {end - 1}" for base, end in self.ranges)


@dataclass(frozen=True, slots=True)
class LoadLocks:
    """All locks of a log at one moment."""

    number: int = 0
    """The number of changes so far."""
    held: tuple[LoadLock, ...] = ()
    """The oldest first; at most one per job."""

    def of(self, job: str) -> LoadLock | None:
        return next((each for each in self.held if each.job == job), None)

    def in_the_way(self, job: str, ranges: Iterable[tuple[int, int]]) -> tuple[LoadLock, ...]:
        """Return the locks of other jobs that overlap these partitions. A job must wait until all of them end."""
        wanted = LoadLock(job, "", tuple(ranges), "", 0).partitions
        return tuple(each for each in self.held if each.job != job and each.partitions & wanted)

    def leaving_no_room(self, job: str) -> tuple[LoadLock, ...]:
        """Return the locks of other jobs if they reach `MOST_HELD`, else none.

        A job must wait until one of them ends.
        """
        others = tuple(each for each in self.held if each.job != job)
        return others if len(others) >= MOST_HELD else ()

    def with_lock(self, lock: LoadLock, over: Collection[LoadLock] = ()) -> "LoadLocks":
        """Return a copy with one more lock, which replaces the job's own lock and those in ``over``."""
        own = self.of(lock.job)
        used = [*over, *([] if own is None else [own])]
        jobs = {job for each in used for job in (each.job, *each.after)} - {lock.job}
        after = tuple(sorted(jobs))[:_MOST_AFTER]
        kept = tuple(each for each in self.held if each not in used)
        ours = replace(lock, after=after)
        return LoadLocks(self.number + 1, (*kept, ours))

    def without(self, lock: LoadLock) -> "LoadLocks":
        return LoadLocks(self.number + 1, tuple(each for each in self.held if each != lock))


def ranges_of(partitions: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return partitions as a few half-open ranges. The last range may include partitions between the named ones."""
    ranges: list[tuple[int, int]] = []
    for each in sorted(partitions):
        if ranges and ranges[-1][1] == each:
            ranges[-1] = (ranges[-1][0], each + 1)
        else:
            ranges.append((each, each + 1))
    if len(ranges) > _MOST_RANGES:
        return (*ranges[: _MOST_RANGES - 1], (ranges[_MOST_RANGES - 1][0], ranges[-1][1]))
    return tuple(ranges)


def load_locks_from_json(text: str | bytes) -> LoadLocks:
    """Parse the JSON of locks; raise FormatError for other text."""
    with in_format("the record of the load locks"):
        fields = json.loads(text)
        return from_fields(LoadLocks, {name: fields[name] for name in ("number", "held")})
