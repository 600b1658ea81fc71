"""Positions of a history's records in a log. Also checks properties 1 and 2 of `check_log`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.history.jobs import Job
from tests.history.records import Found, Record
from tests.history.violation import Violation


@dataclass(slots=True)
class Part:
    """Records of a job in a partition, in log order."""

    job: Job
    partition: int
    offsets: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    """Position of each record in the job's records of the partition, counted from 0."""
    before: int | None = None
    """Offset of the record before the first one."""
    places: list[int] = field(default_factory=list)
    """Position of each record in the partition, counted from 0."""

    @property
    def whole(self) -> bool:
        """Whether all records of the job for this partition are in the log."""
        return set(self.numbers) == set(range(len(self.job.records[self.partition])))

    def __str__(self) -> str:
        return f"job {self.job.name} in partition {self.partition}"


@dataclass(slots=True)
class Placement:
    """All records of a history in a log."""

    log: Mapping[int, Sequence[Found]]
    jobs: Mapping[str, Job]
    parts: dict[tuple[str, int], Part] = field(default_factory=dict)
    owners: dict[int, list[Job | None]] = field(default_factory=dict)
    """By partition, the job of each record; None for a record that no job requested."""
    violations: list[Violation] = field(default_factory=list)

    def of(self, job: Job) -> Iterator[Part]:
        """Yield the records of a job for each of its partitions."""
        for partition in job.records:
            yield self.parts.get((job.name, partition)) or Part(job, partition)


def place(log: Mapping[int, Sequence[Found]], jobs: Mapping[str, Job]) -> Placement:
    """Find the job of each record. Linear in the number of records of the log and the history."""
    asked: dict[Record, tuple[Job, int, int]] = {
        record: (job, partition, number)
        for job in jobs.values()
        for partition, records in job.records.items()
        for number, record in enumerate(records)
    }
    placement = Placement(log, jobs)
    seen: dict[Record, Found] = {}
    for partition, records in log.items():
        owners = placement.owners.setdefault(partition, [])
        before = None
        for place_, found in enumerate(records):
            job, wanted, number = asked.get(found.record, (None, partition, 0))
            owners.append(job)
            if before is not None and found.offset <= before:
                placement.violations.append(
                    Violation(1, f"partition {partition}: offset {found.offset} follows {before}")
                )
            if job is None or wanted != partition:
                cause = "no job requested" if job is None else f"job {job.name} requested in partition {wanted}"
                placement.violations.append(Violation(1, f"partition {partition}: {found}, which {cause}"))
            elif found.record in seen:
                placement.violations.append(
                    Violation(2, f"job {job.name}: its record at {seen[found.record].offset} is repeated at {found}")
                )
            else:
                seen[found.record] = found
                part = placement.parts.setdefault((job.name, partition), Part(job, partition, before=before))
                part.offsets.append(found.offset)
                part.numbers.append(number)
                part.places.append(place_)
            before = found.offset
    return placement
