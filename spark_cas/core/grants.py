"""Which loads may append to which partitions on an expectation: of loads that overlap, one at a time.

The grants of a log are one small value, which is replaced as a whole by whoever saw the one before: so there is one
order for all. They keep honest loads out of each other's way, and nothing else: the append alone decides.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace

from spark_cas.core.errors import FormatError

MOST_HELD = 8
"""So many loads have a grant on one log at once; another waits. Kafka keeps no more than a few kilobytes."""

_MOST_RANGES = 8
_MOST_AFTER = 4


@dataclass(frozen=True, slots=True)
class Grant:
    """The right of one run of a load to append to partitions on what it expects of them."""

    job: str
    run: str
    """Which run of the job it is: it alone gives the grant back."""
    ranges: tuple[tuple[int, int], ...]
    """The partitions, as half-open ranges."""
    process: str
    """The process whose end is the run's end (`spark_cas.log.running_process`); empty where none tells."""
    granted_at_ms: int
    """Milliseconds since 1970."""
    after: tuple[str, ...] = ()
    """Jobs whose grants were taken over for this one: their writers are fenced before it plans."""
    batch_id: int | None = None
    """The micro-batch that it is for, None for a load."""

    @property
    def partitions(self) -> frozenset[int]:
        """All partitions that it is about."""
        return frozenset(each for base, end in self.ranges for each in range(base, end))

    @property
    def told_partitions(self) -> str:
        """The partitions as a person reads them: ``0 to 3, 7``."""
        return ", ".join(f"{base}" if end == base + 1 else f"{base} to {end - 1}" for base, end in self.ranges)


@dataclass(frozen=True, slots=True)
class Grants:
    """All grants of a log at one moment."""

    number: int = 0
    """How often they were changed."""
    held: tuple[Grant, ...] = ()
    """The oldest first; at most one of each job."""

    def of(self, job: str) -> Grant | None:
        """The grant of a job, None where it has none."""
        return next((each for each in self.held if each.job == job), None)

    def in_the_way(self, job: str, ranges: Iterable[tuple[int, int]]) -> tuple[Grant, ...]:
        """The grants of other jobs that have one of these partitions: all have to end before a job gets them."""
        wanted = Grant(job, "", tuple(ranges), "", 0).partitions
        return tuple(each for each in self.held if each.job != job and each.partitions & wanted)

    def leaving_no_room(self, job: str) -> tuple["Grant", ...]:
        """The grants of other jobs where there are as many as may be: one has to end before a job gets any."""
        others = tuple(each for each in self.held if each.job != job)
        return others if len(others) >= MOST_HELD else ()

    def with_grant(self, grant: Grant, over: Collection[Grant] = ()) -> "Grants":
        """As these, with one more: in place of the job's own, and of those that it takes over."""
        own = self.of(grant.job)
        taken = [*over, *([] if own is None else [own])]
        jobs = {job for each in taken for job in (each.job, *each.after)} - {grant.job}
        after = tuple(sorted(jobs))[:_MOST_AFTER]
        kept = tuple(each for each in self.held if each not in taken)
        mine = replace(grant, after=after)
        return Grants(self.number + 1, (*kept, mine))

    def without(self, grant: Grant) -> "Grants":
        """As these, without one that has ended."""
        return Grants(self.number + 1, tuple(each for each in self.held if each != grant))


def ranges_of(partitions: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Partitions as half-open ranges: a few, which may cover some that lie in between as well."""
    ranges: list[tuple[int, int]] = []
    for each in sorted(partitions):
        if ranges and ranges[-1][1] == each:
            ranges[-1] = (ranges[-1][0], each + 1)
        else:
            ranges.append((each, each + 1))
    if len(ranges) > _MOST_RANGES:
        return (*ranges[: _MOST_RANGES - 1], (ranges[_MOST_RANGES - 1][0], ranges[-1][1]))
    return tuple(ranges)


def grants_to_json(grants: Grants) -> str:
    """Grants as one line of JSON."""
    return json.dumps(asdict(grants), sort_keys=True, separators=(",", ":"))


def grants_from_json(text: str | bytes) -> Grants:
    """Read what `grants_to_json` wrote. Raises FormatError."""
    try:
        fields = json.loads(text)
        return Grants(int(fields["number"]), tuple(_grant(each) for each in fields["held"]))
    except (AttributeError, KeyError, TypeError, ValueError):
        raise FormatError(
            "the grants of the log are not what this spark_cas writes. Were they written by a newer version, or does "
            "another program write there?"
        ) from None


def _grant(fields: dict[str, object]) -> Grant:
    given = dict(fields)
    ranges = tuple((int(base), int(end)) for base, end in given.pop("ranges"))  # type: ignore[attr-defined]
    after = tuple(str(each) for each in given.pop("after"))  # type: ignore[attr-defined]
    return Grant(ranges=ranges, after=after, **given)  # type: ignore[arg-type]
