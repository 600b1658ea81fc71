"""Appends of a history, grouped by job. A retried job is one append with several attempts."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.history.operations import FAIL, OK, Operation
from tests.history.records import Record

APPEND = "append"
CONFLICTS = ("CONFLICT", "KEY_CONFLICT")
"""Error kinds for an expected offset of a partition or key that does not match."""


@dataclass(slots=True, eq=False)
class Job:
    """An append to some partitions, and its attempts in the order of their start times.

    The arguments of its operations are:

    - ``job``: the name of the job
    - ``records``: by partition, lists of (key, value)
    - ``expected``: by partition, an offset or null
    - ``compare``: ``partition`` or ``key``
    - ``chunk_records``: the number of records in a chunk of a load; null if the append is atomic over all partitions

    The result of ``ok`` is ``ranges``: by partition, the offset of the first record and the offset after the last. A
    stream reports no ranges. The result of ``fail`` and ``info`` is ``kind``, as `spark_cas.ErrorKind`.
    """

    name: str
    records: Mapping[int, tuple[Record, ...]]
    expected: Mapping[int, int | None]
    by_key: bool
    chunk_records: int | None
    attempts: list[Operation] = field(default_factory=list)

    @property
    def start_ns(self) -> int:
        """Start time of the first attempt. No record was sent before it."""
        return self.attempts[0].start_ns

    @property
    def acknowledged(self) -> Operation | None:
        """The attempt that was first to report that the append is complete; None if there is none."""
        complete = [each for each in self.attempts if each.outcome == OK]
        return min(complete, key=ended_ns, default=None)

    @property
    def end_ns(self) -> float:
        """Time at which the append was first acknowledged; infinite if it was not."""
        first = self.acknowledged
        return math.inf if first is None else ended_ns(first)

    @property
    def refused(self) -> bool:
        """Whether the client knows that none of the records is in the log.

        This is so if each attempt failed. It is also so if one process ran all attempts and the last reported a
        conflict.
        """
        if all(each.outcome == FAIL for each in self.attempts):
            return True
        last = self.attempts[-1]
        alone = {each.process for each in self.attempts} == {last.process}
        return alone and last.outcome == FAIL and last.result["kind"] in CONFLICTS


def ended_ns(operation: Operation) -> float:
    """Return the end time of an operation; infinite if it has none."""
    return math.inf if operation.end_ns is None else operation.end_ns


def jobs_of(history: Iterable[Operation]) -> dict[str, Job]:
    """Return the jobs by name. Raises ValueError if attempts of a job differ or two jobs have equal records."""
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
                    raise ValueError(f"jobs {owners[record]} and {job.name} both append {record}")
        elif (job.records, job.expected, job.by_key) != (known.records, known.expected, known.by_key):
            raise ValueError(f"the attempts of job {job.name} have different arguments")
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
