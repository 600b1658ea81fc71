"""Writers that increment shared counters in a log, each increment only if its counter has not changed."""

import random

import pyarrow as pa

from spark_cas import RECORDS, append_once
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.outcome import Appended, KeyConflict, Unknown
from spark_cas.log.backend import Backend

COUNTERS = [f"counter-{number}".encode() for number in range(5)]
MOST_REFUSALS = 200
"""The maximum number of rejections of one increment."""


def count_up(log: Backend, writer: int, increments: int) -> None:
    """Append this many increments to random counters. After a rejection, read the new values and retry."""
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
            msg = f"increment {number} of writer {writer} was rejected {MOST_REFUSALS} times"
            raise AssertionError(msg)


def require_all_counted(log: Backend, increments: int) -> None:
    """Check that each counter increased by one each time, and that the total matches."""
    counted: dict[bytes, list[int]] = {counter: [] for counter in COUNTERS}
    for _, batch in log.read(0, log.bounds(0).range, ("key", "value")):
        for row in batch.to_pylist():
            counted[row["key"]].append(int(row["value"]))
    assert sum(map(len, counted.values())) == increments
    assert all(each == list(range(1, len(each) + 1)) for each in counted.values())
