"""Steps whose cost should not depend on the length of a log: a partition in a directory, with few and many chunks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

from benchmarks.appending import appender
from benchmarks.scale.series import Series, in_turn
from spark_cas import RECORDS, open_log
from spark_cas.core.claim import Claim
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.plan import Plan
from spark_cas.log.backend import Backend
from spark_cas.log.load.planning import pin_plan
from spark_cas.log.open import AnySpec, parse_address

ROWS = 10
"""Rows of each chunk."""
_RECORDS = pa.Table.from_pylist(
    [{"key": b"%010d" % each, "value": b"%0100d" % each} for each in range(ROWS)], RECORDS
)


@dataclass(frozen=True, slots=True)
class _Log:
    """A log of one partition, to which a job has appended chunks and continues to append."""

    spec: AnySpec
    plan: Plan
    """The plan of the job that appended all chunks."""
    fresh: Plan
    """The plan of a job without rows."""
    append: Callable[[], None]
    kept_open: Backend

    def open(self) -> None:
        with open_log(self.spec) as log:
            log.layout()

    def find_end(self) -> None:
        with open_log(self.spec) as log:
            log.bounds(0)

    def claim(self, plan: Plan) -> None:
        with open_log(self.spec) as log:
            locked = log.claim(0, plan)
            if not isinstance(locked, Claim):
                raise TypeError(locked)

    def follow(self) -> None:
        """Read the newest chunk, whose base offset is known, as a follower of the log does."""
        end = self.kept_open.bounds(0).end_offset
        self._read(OffsetRange(end - ROWS, end))

    def read_all(self) -> None:
        self._read(self.kept_open.bounds(0).range)

    def _read(self, offsets: OffsetRange) -> None:
        if sum(records.num_rows for _, records in self.kept_open.read(0, offsets)) != len(offsets):
            raise LookupError(offsets)


def grow_chunks(scratch: Path, sizes: Mapping[int, int], repeats: int) -> list[Series]:
    """Measure single steps in logs of each size in turn. ``sizes`` has the repeats of reads of all records."""
    logs = {size: _make(scratch / f"chunks-{size}", size) for size in sizes}
    steps = {
        "open a log": lambda log: log.open(),
        "open a log and find its end": lambda log: log.find_end(),
        "open and claim for a new job": lambda log: log.claim(log.fresh),
        "open and claim for the existing job": lambda log: log.claim(log.plan),
        "append to an open log": lambda log: log.append(),
        "read the newest chunk of an open log": lambda log: log.follow(),
    }
    works = {name: {size: _bound(step, log) for size, log in logs.items()} for name, step in steps.items()}
    everything = {"read all records": {size: log.read_all for size, log in logs.items()}}
    found = in_turn("chunks", works, dict.fromkeys(sizes, repeats)) + in_turn("chunks", everything, sizes)
    for log in logs.values():
        log.kept_open.__exit__(None, None, None)
    return found


def _bound(step: Callable[[_Log], None], log: _Log) -> Callable[[], None]:
    return lambda: step(log)


def _make(path: Path, chunks: int) -> _Log:
    """Create a log without fsync, which would take most of an hour."""
    spec = parse_address(str(path))
    log = open_log(spec)
    with patch("os.fsync"):
        log.create(1)
        append = appender(log, 0, _RECORDS)
        for _ in range(chunks):
            append()
    [job] = log.jobs()
    plan = log.plan(job)
    if plan is None:
        raise LookupError(job)
    return _Log(spec, plan, pin_plan(log, "another", ExpectedOffsets.parse("end")), append, log)
