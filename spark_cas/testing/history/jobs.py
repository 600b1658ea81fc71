"""The appends of a history by their job: a job that was asked for again is one append with several attempts."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_cas.testing.history.operations import FAIL, OK, Operation
from spark_cas.testing.history.records import Record

APPEND = "append"
CONFLICTS = ("CONFLICT", "KEY_CONFLICT")
"""What is told of an expected offset, or one of a key, that does not hold."""


@dataclass(slots=True, eq=False)
class Job:
    """An append to some partitions, and its attempts in the order of their starts.

    The arguments of its operations are ``job``; ``records``, by partition lists of (key, value); ``expected``, by
    partition an offset or null; ``compare``, ``partition`` or ``key``; and ``chunk_records``: null for what is whole
    over all of its partitions, else how many records a chunk of a load has. The result of an ``ok`` are
    ``ranges``, by partition the offset of its first record and one behind its last, unless the client was told none,
    as of a stream; that of a ``fail`` or ``info`` is its ``kind``, as `spark_cas.ErrorKind`.
    """

    name: str
    records: Mapping[int, tuple[Record, ...]]
    expected: Mapping[int, int | None]
    by_key: bool
    chunk_records: int | None
    attempts: list[Operation] = field(default_factory=list)

    @property
    def start_ns(self) -> int:
        """None of its records was sent before."""
        return self.attempts[0].start_ns

    @property
    def acknowledged(self) -> Operation | None:
        """The first attempt that was told that all of it is in the log."""
        told = [each for each in self.attempts if each.outcome == OK]
        return min(told, key=ended_ns, default=None)

    @property
    def end_ns(self) -> float:
        """From then on all of it was known to be in the log; infinite where nobody was told."""
        told = self.acknowledged
        return math.inf if told is None else ended_ns(told)

    @property
    def refused(self) -> bool:
        """Whether its process was told that nothing of it is in the log.

        Each attempt was, or a conflict was told to the last, which began when the others had ended.
        """
        if all(each.outcome == FAIL for each in self.attempts):
            return True
        last = self.attempts[-1]
        alone = {each.process for each in self.attempts} == {last.process}
        return alone and last.outcome == FAIL and last.result["kind"] in CONFLICTS


def ended_ns(operation: Operation) -> float:
    """When an operation ended; infinite where nobody heard."""
    return math.inf if operation.end_ns is None else operation.end_ns


def jobs_of(history: Iterable[Operation]) -> dict[str, Job]:
    """The jobs by name. Raises ValueError where attempts of one differ, or records of two are equal."""
    jobs: dict[str, Job] = {}
    owners: dict[Record, str] = {}
    for operation in history:
        if operation.name != APPEND:
            continue
        job = _job(operation.arguments)
        known = jobs.setdefault(job.name, job)
        if known is job:
            for record in (each for records in job.records.values() for each in records):
                if owners.setdefault(record, job.name) != job.name:
                    raise ValueError(f"{record} is asked for by jobs {owners[record]} and {job.name}")
        elif (job.records, job.expected, job.by_key) != (known.records, known.expected, known.by_key):
            raise ValueError(f"the attempts of job {job.name} differ in what they ask for")
        known.attempts.append(operation)
    for job in jobs.values():
        job.attempts.sort(key=lambda each: each.start_ns)
    return jobs


def _job(arguments: Mapping[str, Any]) -> Job:
    records = {int(at): tuple(Record(*each) for each in rows) for at, rows in arguments["records"].items()}
    return Job(
        arguments["job"],
        records,
        {int(at): offset for at, offset in arguments["expected"].items()},
        arguments["compare"] == "key",
        arguments["chunk_records"],
    )
