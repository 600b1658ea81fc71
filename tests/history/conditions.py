"""Properties 7 to 10 of `check_log`: expected offsets and the order in real time."""

import math
from bisect import bisect_left
from collections.abc import Iterator

from tests.history.jobs import CONFLICTS, Job
from tests.history.operations import Operation
from tests.history.placement import Part, Placement
from tests.history.violation import Violation


def conditions(placement: Placement) -> Iterator[Violation]:
    """Return the appends that violate their expected offsets or the real-time order."""
    starts = {partition: _Firsts(placement, partition) for partition in placement.log}
    newest: dict[tuple[int, str], tuple[int, Job]] = {}
    for partition, owners in placement.owners.items():
        yield from _real_time(partition, owners)
        for (offset, (key, _)), job in zip(placement.log[partition], owners, strict=True):
            part = placement.parts.get((job.name, partition)) if job else None
            if part is not None and part.offsets[0] == offset and part.job.by_key:
                yield from _of_keys(part, newest)
            if job is not None:
                newest[partition, key] = offset, job
    taken: dict[tuple[int, int], str] = {}
    for job in placement.jobs.values():
        for part in placement.of(job):
            if part.offsets and not job.by_key:
                yield from _of_partition(part, taken)
        if job.acknowledged:
            yield from _only_expected(job, starts)
        for attempt in job.attempts:
            yield from _true_conflict(job, attempt, starts)


def _of_partition(part: Part, taken: dict[tuple[int, int], str]) -> Iterator[Violation]:
    expected = part.job.expected.get(part.partition)
    if expected is None:
        return
    if part.offsets[0] < expected:
        yield Violation(7, f"{part} expected {expected}, and starts at {part.offsets[0]}")
    elif part.before is not None and part.before >= expected:
        yield Violation(7, f"{part} expected {expected}, and follows a record of another job at {part.before}")
    other = taken.setdefault((part.partition, expected), part.job.name)
    if other != part.job.name:
        yield Violation(8, f"{part} expected {expected}, as {other} did, and both are in the log")


def _of_keys(part: Part, newest: dict[tuple[int, str], tuple[int, Job]]) -> Iterator[Violation]:
    expected = part.job.expected.get(part.partition)
    if expected is None:
        return
    for key in {record.key for record in part.job.records[part.partition]}:
        offset, other = newest.get((part.partition, key), (-1, part.job))
        if offset >= expected and other is not part.job:
            yield Violation(7, f"{part} expected {expected} of key {key}, of which {other.name} has one at {offset}")


def _real_time(partition: int, owners: list[Job | None]) -> Iterator[Violation]:
    """Check in log order that no job was acknowledged before an earlier record's job began."""
    begun_ns, by = -1, ""
    for job in dict.fromkeys(each for each in owners if each is not None):
        if job.end_ns < begun_ns:
            problem = f"job {job.name} follows {by}, which started after it was acknowledged"
            yield Violation(9, f"partition {partition}: {problem}")
        if job.start_ns > begun_ns:
            begun_ns, by = job.start_ns, job.name


class _Firsts:
    """For each offset, the earliest send and acknowledgement times of records at or after it."""

    def __init__(self, placement: Placement, partition: int) -> None:
        self._offsets = [found.offset for found in placement.log[partition]]
        self._sent: list[tuple[float, str]] = [(math.inf, "")] * 2
        self._ended: list[tuple[float, str]] = [(math.inf, "")]
        # Process records from the end. Keep the earliest two jobs, because one may be the job in question.
        for job in reversed(placement.owners[partition]):
            sent = (math.inf, "") if job is None else (float(job.start_ns), job.name)
            ended = (math.inf, "") if job is None else (job.end_ns, job.name)
            self._ended.append(min(self._ended[-1], ended))
            pair = {name: when for when, name in (*self._sent[-2:], sent)}
            self._sent += sorted((when, name) for name, when in pair.items())[:2]
            self._sent += [(math.inf, "")] * (len(self._sent) % 2)

    def sent_ns(self, offset: int, but: Job) -> float:
        """Return the earliest start time of another job with a record at or after an offset."""
        at = 2 * (len(self._offsets) - bisect_left(self._offsets, offset))
        return min((when for when, name in self._sent[at : at + 2] if name != but.name), default=math.inf)

    def acknowledged_ns(self, offset: int) -> float:
        """Return the earliest acknowledgement time of a record at or after an offset."""
        return self._ended[len(self._offsets) - bisect_left(self._offsets, offset)][0]


def _only_expected(job: Job, starts: dict[int, _Firsts]) -> Iterator[Violation]:
    for partition, expected in job.expected.items():
        if expected is None or partition in job.records or partition not in starts:
            continue
        if starts[partition].acknowledged_ns(expected) < job.start_ns:
            yield Violation(
                7, f"job {job.name} expected {expected} of partition {partition}, which had later records"
            )


def _true_conflict(job: Job, attempt: Operation, starts: dict[int, _Firsts]) -> Iterator[Violation]:
    if attempt.result.get("kind") not in CONFLICTS:
        return
    told_ns = math.inf if attempt.end_ns is None else attempt.end_ns
    claims = [(at, offset) for at, offset in job.expected.items() if offset is not None and at in starts]
    if not any(starts[at].sent_ns(offset, job) <= told_ns for at, offset in claims):
        yield Violation(10, f"job {job.name} got a conflict, and no record of another job follows {claims}")
