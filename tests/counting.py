"""Writers that count shared counters up in a log, each increment only if nothing happened to its counter."""

import random

import pyarrow as pa

from spark_cas import RECORDS, append_once
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.outcome import Appended, KeyConflict, Unknown
from spark_cas.log.backend import Backend

COUNTERS = [f"counter-{number}".encode() for number in range(5)]
MOST_REFUSALS = 200
"""More than so many refusals of one increment is no end in sight."""


def count_up(log: Backend, writer: int, increments: int) -> None:
    """Append so many increments to counters by chance. A refused one is made again with what is there now."""
    choose = random.Random(writer)
    values, seen = dict.fromkeys(COUNTERS, 0), 0
    for number in range(increments):
        counter = choose.choice(COUNTERS)
        for _ in range(MOST_REFUSALS):
            records = pa.Table.from_pylist([{"key": counter, "value": b"%d" % (values[counter] + 1)}], RECORDS)
            job = f"{writer}-{number}"
            outcome = append_once(log, 0, records, job=job, expected_offset=seen, compare="key")
            if isinstance(outcome, Appended):
                break
            assert isinstance(outcome, KeyConflict | Unknown), outcome
            end = log.bounds(0).end_offset
            for _, batch in log.read(0, OffsetRange(seen, end), ("key", "value")):
                values |= {row["key"]: int(row["value"]) for row in batch.to_pylist()}
            seen = end
        else:
            msg = f"increment {number} of writer {writer} never came about"
            raise AssertionError(msg)


def require_all_counted(log: Backend, increments: int) -> None:
    """Each counter went up by one each time, and all of them together as often as that."""
    counted: dict[bytes, list[int]] = {counter: [] for counter in COUNTERS}
    for _, batch in log.read(0, log.bounds(0).range, ("key", "value")):
        for row in batch.to_pylist():
            counted[row["key"]].append(int(row["value"]))
    assert sum(map(len, counted.values())) == increments
    assert all(each == list(range(1, len(each) + 1)) for each in counted.values())
