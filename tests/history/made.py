"""Handwritten histories and logs: one line for each append."""

from collections.abc import Mapping
from typing import Any

from tests.history.check_log import check_log
from tests.history.operations import FAIL, INFO, OK, Operation
from tests.history.records import Found, Record, chained

At = Mapping[int, int | None]


def records_of(job: str, partition: int, count: int = 2, key: str = "k") -> list[Record]:
    """Return the records that `append` sends for a job."""
    return [Record(key, f"{job}/{partition}/{at}") for at in range(count)]


def append(
    job: str,
    start: int,
    end: int | None,
    expected: At,
    *,
    ranges: Mapping[int, tuple[int, int]] | None = None,
    kind: str | None = None,
    counts: Mapping[int, int] | None = None,
    key: str = "k",
    **arguments: Any,
) -> Operation:
    """Return an attempt from ``start`` to ``end`` with ``ranges`` as its result, a ``kind`` of failure, or no result.

    It has two records for each partition in ``expected``, unless ``counts`` gives other numbers.
    """
    sizes = counts if counts is not None else dict.fromkeys(expected, 2)
    asked = {
        "job": job,
        "records": {str(at): [list(each) for each in records_of(job, at, size, key)] for at, size in sizes.items()},
        "expected": {str(at): offset for at, offset in expected.items()},
        "compare": "partition",
        "chunk_records": None,
    }
    outcome = INFO if end is None else OK if ranges else INFO if kind in (None, "UNKNOWN_OUTCOME") else FAIL
    told = {"ranges": {str(at): list(each) for at, each in ranges.items()}} if ranges else {"kind": kind}
    return Operation("w", "append", asked | arguments, start, end, outcome, told if end is not None else {})


def read(start: int, seen: Mapping[int, tuple[int, list[Found]]]) -> Operation:
    """Return a read that saw these records below these end offsets."""
    told = {str(at): [end, len(found), digest(found)] for at, (end, found) in seen.items()}
    return Operation("r", "read", {}, start, start + 1, OK, {"seen": told})


def digest(found: list[Found]) -> int:
    before = 0
    for each in found:
        before = chained(before, each)
    return before


def at(base_offset: int, job: str, partition: int = 0, count: int = 2, key: str = "k") -> list[Found]:
    """Return the records of a job at consecutive offsets."""
    return [Found(base_offset + n, each) for n, each in enumerate(records_of(job, partition, count, key))]


def numbers(history: list[Operation], *partitions: list[Found]) -> set[int]:
    """Return the properties that a log violates."""
    return {each.number for each in check_log(history, dict(enumerate(partitions)))}
