"""Check the final content of a log against the history of the operations that wrote it.

A violation names one of these properties. Numbers such as (I1) are the invariants that they cover:

 1. Offsets increase. An append requested each record, with this content and for this partition.
 2. No record occurs twice. A record with an unknown result occurs once or not at all (I5, I6).
 3. An acknowledged append is complete. Its records are within the offsets that each attempt reported (I1).
 4. All or nothing (I2): the log has all records of an append, over all its partitions, or none. A load has whole
    chunks, and a prefix of each partition's chunks. Acknowledged, rejected and unknown results make no difference.
 5. The log never contains records of a definite rejection, even after a frozen process resumes (I3). A load may
    leave a prefix. If the last attempt reports a conflict, the earlier attempts are rejected too.
 6. The records of a job are in order. If the job expected an offset, or an offset of its keys, no record of another
    job is between those of one append, or of a load in one partition.
 7. If an append expected offset n, its records are at or after n, and no other record is between (I1). With
    compare=key, this applies to records with its keys. If an atomic append expects n in a partition without
    own rows, no other append may have been acknowledged there, at or after n, before it began.
 8. Of two appends that expected the same offset of a partition, at most one succeeded (I1).
 9. If one append to a partition was acknowledged before another began, its records have lower offsets.
10. A reported conflict is real: another job's record that was sent before is at or after the offset.
11. No client receives an error for an impossible state: lost records, corrupt bytes or changed rows. A run of a
    job without expected offsets may report lost progress if another attempt began before it ended, unless the job
    was acknowledged before. Such a run cannot distinguish its own records from others.
12. A reader that reads the end offsets and waits sees the end of each append that was acknowledged before (I12).
13. The records that a reader saw below an end offset are in the log: none was aborted or changed (I11).
14. For an append over several partitions that a reader read in one step, the reader saw all parts or none.
15. A client that repeats an acknowledged append with other records gets an error (I8). This is an operation
    `CHANGED`, which is never ``ok``. Property 1 ensures that none of its records is in the log.

Gaps from Kafka's transaction markers and aborted records are always legal.

The check is linear. Records and offsets are unique, so the order of the log is the only candidate for the order of
the appends, and each property needs one pass over it. See "Testing shared memories" (Gibbons and Korach, 1997): if
the write order is known, checking is linear except for sorting. Sorting by time takes O(n log n) for n operations.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from spark_cas.core.errors import ErrorKind
from tests.history.conditions import conditions
from tests.history.jobs import APPEND, Job, ended_ns, jobs_of
from tests.history.operations import OK, Operation
from tests.history.placement import Part, Placement, place
from tests.history.reads import reads
from tests.history.records import Found
from tests.history.violation import Violation

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
    """Return all violations of a log, sorted by property.

    Args:
        history: the operations (see `tests.history.jobs.Job` and `tests.history.reads`)
        log: the records of each partition up to its end, in order

    Raises:
        ValueError: if the history is inconsistent
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
        yield Violation(3, f"{part} was reported at offsets {base_offset} to {end_offset}, but is at {at}")


def _whole(job: Job, parts: Sequence[Part]) -> Iterator[Violation]:
    if job.chunk_records is None:
        if job.refused and any(part.numbers for part in parts):
            yield Violation(5, f"job {job.name} was rejected, but is in the log")
        elif any(part.numbers for part in parts) and not all(part.whole for part in parts):
            held = ", ".join(f"{len(part.numbers)} in partition {part.partition}" for part in parts)
            yield Violation(4, f"job {job.name} is incomplete: {held}")
        return
    for part in parts:
        count, total = len(part.numbers), len(job.records[part.partition])
        cut = count % job.chunk_records if count < total else 0
        if cut or set(part.numbers) != set(range(count)):
            yield Violation(4, f"{part}: of its chunks of {job.chunk_records}, {sorted(part.numbers)} are in the log")


def _order(placement: Placement, job: Job, parts: Sequence[Part]) -> Iterator[Violation]:
    for part in parts:
        if part.numbers != sorted(part.numbers):
            yield Violation(6, f"{part}: its records are in the order {part.numbers}")
        places = part.places
        checked = job.expected.get(part.partition) is not None
        # With compare=key, records with other keys may be between two chunks of a load.
        if checked and places and not (job.by_key and job.chunk_records):
            between = placement.owners[part.partition][places[0] : places[-1] + 1]
            others = {each.name for each in between if each not in (None, job)}
            if others:
                yield Violation(6, f"{part}: between its records are some of {', '.join(sorted(others))}")


def _never(history: Iterable[Operation], jobs: Mapping[str, Job]) -> Iterator[Violation]:
    for each in history:
        if each.name == CHANGED:
            if each.outcome == OK:
                yield Violation(
                    15, f"{each.process} repeated job {each.arguments['job']} with other records: {each.result}"
                )
        elif each.result.get("kind") in NEVER and not _may_be_its_own(each, jobs):
            yield Violation(11, f"{each.process} received {each.result['kind']}: {each.result.get('told', '')}")


def _may_be_its_own(told: Operation, jobs: Mapping[str, Job]) -> bool:
    """Return whether a run may report lost progress, because it cannot distinguish its own records from others."""
    if told.name != APPEND or told.result["kind"] != ErrorKind.PROGRESS_LOST:
        return False
    job = jobs[told.arguments["job"]]
    others = [each for each in job.attempts if each is not told and each.start_ns < ended_ns(told)]
    expects_nothing = all(offset is None for offset in job.expected.values())
    return expects_nothing and bool(others) and job.end_ns >= told.start_ns
