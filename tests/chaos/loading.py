"""One attempt at a load of several chunks, with the load lock if its arguments require it."""

import json
import os
import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.plan import PartitionResult, Plan
from spark_cas.core.records import RECORDS
from spark_cas.log.backend import Backend
from spark_cas.log.load.append_rows import append_rows
from spark_cas.log.load.locking import Applicant, acquire_lock, process_name, release_lock
from spark_cas.log.load.planning import complete_job, pin_plan
from tests.chaos.locked import HELD
from tests.history.operations import OK

Told = tuple[str, dict[str, Any]]
"""An event and its result, as `tests.history.recorder.Recorder` takes them."""

_FENCED_RETRY_WAIT_SECONDS = 1.0
_LOCK_WAIT_SECONDS = 1.0


def load(log: Backend, arguments: Mapping[str, Any], run: str, held: dict[str, Any]) -> Told:
    """Run the load in the arguments of an operation.

    Store in ``held`` the time from which and until which it certainly held the load lock.

    Raises ConditionalLogError; any other exception is a defect.
    """
    wanted = ExpectedOffsets.parse(json.dumps(arguments["expected"]))
    lock = None
    if arguments["locked"]:
        process = process_name(os.getpid())
        lock = acquire_lock(log, Applicant(arguments["job"], run, process, _LOCK_WAIT_SECONDS), wanted)
    since = time.monotonic_ns()
    try:
        plan = pin_plan(log, arguments["job"], wanted)
        try:
            results = _load(log, plan, arguments, run)
        finally:
            # After the completion of the job is recorded, another load may get the lock.
            if lock is not None:
                held[HELD] = [since, time.monotonic_ns()]
        done = complete_job(log, plan, results)
    finally:
        release_lock(log, lock)
    ranges = {
        str(each.progress.partition): [each.progress.base_offset, each.progress.end_offset]
        for each in done.partitions
    }
    return OK, {"ranges": ranges, "resolved": False} | held


def _load(log: Backend, plan: Plan, arguments: Mapping[str, Any], run: str) -> tuple[PartitionResult, ...]:
    limits = ChunkLimits(max_records=arguments["chunk_records"], max_bytes=1_000_000, max_seconds=1_000)
    records = arguments["records"].items()
    batches = ((int(at), batch) for at, rows in records for batch in table_of(rows).to_batches())
    return append_rows(
        log, plan, batches, task=f"{run}/0", limits=limits, fenced_retry_wait_seconds=_FENCED_RETRY_WAIT_SECONDS
    )


def table_of(rows: list[list[str]]) -> pa.Table:
    """Return keys and values as records to append."""
    return pa.Table.from_pylist([{"key": k.encode(), "value": v.encode()} for k, v in rows], schema=RECORDS)
