"""Whether a log, read to its end after all has calmed down, is one that its history allows.

The properties, by the number that a violation names; (I..) are the invariants that they stand for:

 1. Offsets rise, and each record is one that an append asked for, as it was sent, in that partition.
 2. No record is there twice. So what nobody was told the end of is there once or not at all (I5, I6).
 3. What was acknowledged is there, whole, from the first offset and below the end that each attempt was told (I1).
 4. All or nothing (I2): of an append over one or more partitions all records are there or none, of a load whole
    chunks, and of each partition's a prefix. What is acknowledged, refused or unknown makes no difference.
 5. What was definitely refused is nowhere, also once what was frozen has thawed (I3); of a load, a prefix may be.
    A conflict that a later attempt is told of settles the attempts before it.
 6. Records of a job lie in their order, and where an offset was expected, or something of their keys, nothing of
    others lies between those of one append, or of a load in one partition.
 7. What expected offset n, whoever was told of it, lies at or behind n, and nothing of others lies between (I1); by
    key, nothing of others with one of its keys. An append as a whole that only expects n of a partition was not made
    after another was acknowledged there at or behind n.
 8. Of two appends that expected the same offset of a partition at most one is there (I1).
 9. Of two appends to a partition the one that was acknowledged before the other began lies before it.
10. Who was told of a conflict was told the truth: a record of others, sent before, lies at or behind the offset.
11. Nobody was told of what cannot be: records that were lost, bytes that are damaged, rows that changed. A run of a
    job that expects nothing may be told that progress was lost, unless it was the only one, or the job had been
    acknowledged before: it cannot know its own records from those of others.
12. A reader that looked where partitions end, and waited, saw the end of each append acknowledged before (I12).
13. What a reader saw below an end is what lies there: nothing that was aborted, and nothing changed since (I11).
14. A reader saw an append over several of the partitions that it looked at in one step in each of them or in none.
15. Who asked for other records under the name of an append that was acknowledged was told so (I8): an operation
    `CHANGED`, which is never ``ok``. Its records are nobody's, so that none of them is in the log is property 1.

Gaps, as Kafka's markers and aborted records leave them, are legal everywhere.

How it stays linear: in a log with unique records and offsets, the order of the log is the only candidate for the
order of appends, so each property is one pass over it ("Testing shared memories", Gibbons and Korach, 1997: with the
write order known, checking is linear but for sorting). Sorting by time makes it O(n log n) in operations.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from spark_cas.core.errors import ErrorKind
from spark_cas.testing.history.conditions import conditions
from spark_cas.testing.history.jobs import APPEND, Job, ended_ns, jobs_of
from spark_cas.testing.history.operations import OK, Operation
from spark_cas.testing.history.placement import Part, Placement, place
from spark_cas.testing.history.reads import reads
from spark_cas.testing.history.records import Found
from spark_cas.testing.history.violation import Violation

NEVER = {
    ErrorKind.TRUNCATED,
    ErrorKind.PROGRESS_LOST,
    ErrorKind.INPUT_CHANGED,
    ErrorKind.JOB_MISMATCH,
    ErrorKind.CHECKPOINT_MISMATCH,
    ErrorKind.CHUNK_DAMAGED,
    ErrorKind.FORMAT,
    ErrorKind.STORE_UNSAFE,
    ErrorKind.LOG_NOT_FOUND,
    ErrorKind.LOG_NOT_SHARED,
    ErrorKind.TRIMMED,
}

CHANGED = "changed"


def check_log(history: Iterable[Operation], log: Mapping[int, Sequence[Found]]) -> list[Violation]:
    """All that is wrong; nothing when all is well. ``log`` is each partition to its end, in its order.

    Appends and reads are as `spark_cas.testing.history.jobs.Job` and `spark_cas.testing.history.reads` say.
    Raises ValueError for a history that is none.
    """
    history = list(history)
    jobs = jobs_of(history)
    placement = place(log, jobs)
    found = list(placement.violations)
    for job in jobs.values():
        parts = list(placement.of(job))
        found += [*_acknowledged(job, parts), *_whole(job, parts), *_order(placement, job, parts)]
    found += conditions(placement)
    found += _never(history, jobs)
    found += reads(history, placement)
    return sorted(found, key=lambda each: each.number)


def _acknowledged(job: Job, parts: Sequence[Part]) -> Iterator[Violation]:
    if job.acknowledged is None:
        return
    for part in parts:
        missing = len(job.records[part.partition]) - len(part.numbers)
        if missing:
            yield Violation(3, f"{part} was acknowledged, and {missing} of its records are missing")
            continue
        for each in job.attempts:
            if each.outcome == OK and "ranges" in each.result:
                yield from _range(part, *each.result["ranges"][str(part.partition)])


def _range(part: Part, base_offset: int, end_offset: int) -> Iterator[Violation]:
    if part.offsets[0] != base_offset or part.offsets[-1] >= end_offset:
        at = f"{part.offsets[0]} to {part.offsets[-1]}"
        yield Violation(3, f"{part} was told to lie from {base_offset} and below {end_offset}, and lies at {at}")


def _whole(job: Job, parts: Sequence[Part]) -> Iterator[Violation]:
    if job.chunk_records is None:
        if job.refused and any(part.numbers for part in parts):
            yield Violation(5, f"job {job.name} was refused, and is in the log")
        elif any(part.numbers for part in parts) and not all(part.whole for part in parts):
            held = ", ".join(f"{len(part.numbers)} in partition {part.partition}" for part in parts)
            yield Violation(4, f"job {job.name} is there in part: {held}")
        return
    for part in parts:
        count, total = len(part.numbers), len(job.records[part.partition])
        cut = count % job.chunk_records if count < total else 0
        if cut or set(part.numbers) != set(range(count)):
            yield Violation(4, f"{part}: of its chunks of {job.chunk_records}, {sorted(part.numbers)} are there")


def _order(placement: Placement, job: Job, parts: Sequence[Part]) -> Iterator[Violation]:
    for part in parts:
        if part.numbers != sorted(part.numbers):
            yield Violation(6, f"{part}: its records lie in the order {part.numbers}")
        places = part.places
        checked = job.expected.get(part.partition) is not None
        # By key, what is of other keys may lie between two chunks of a load.
        if checked and places and not (job.by_key and job.chunk_records):
            between = placement.owners[part.partition][places[0] : places[-1] + 1]
            others = {each.name for each in between if each not in (None, job)}
            if others:
                yield Violation(6, f"{part}: between its records lie some of {', '.join(sorted(others))}")


def _never(history: Iterable[Operation], jobs: Mapping[str, Job]) -> Iterator[Violation]:
    for each in history:
        if each.name == CHANGED:
            if each.outcome == OK:
                yield Violation(
                    15, f"{each.process} asked job {each.arguments['job']} for other records: {each.result}"
                )
        elif each.result.get("kind") in NEVER and not _may_be_its_own(each, jobs):
            yield Violation(11, f"{each.process} was told {each.result['kind']}: {each.result.get('told', '')}")


def _may_be_its_own(told: Operation, jobs: Mapping[str, Job]) -> bool:
    """Whether lost progress is what a run has to be told that cannot tell others' records from its job's."""
    if told.name != APPEND or told.result["kind"] != ErrorKind.PROGRESS_LOST:
        return False
    job = jobs[told.arguments["job"]]
    others = [each for each in job.attempts if each is not told and each.start_ns < ended_ns(told)]
    expects_nothing = all(offset is None for offset in job.expected.values())
    return expects_nothing and bool(others) and job.end_ns >= told.start_ns
