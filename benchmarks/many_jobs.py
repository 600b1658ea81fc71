"""The latency of `append_once` under a new job name, after many earlier jobs and after a few."""

import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch
from zlib import crc32

import pyarrow as pa
from confluent_kafka import Producer

from benchmarks.appending import appender
from benchmarks.kafka_broker import Topics
from benchmarks.measure import Result, seconds_of
from spark_cas import RECORDS, append_once, open_log, raise_for_outcome
from spark_cas.core.outcome import Appended
from spark_cas.core.plan import Completion, Plan
from spark_cas.core.recorded_fields import to_json
from spark_cas.log.backend import Backend
from spark_cas.log.kafka.registry.compacted_map import records_of
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.kafka.topic.topics import JOB_PARTITIONS
from spark_cas.log.open import AnySpec, parse_address

FEW = 10
_FIRST = "first-load"
_WARM_UP = 2 * JOB_PARTITIONS
"""After these calls, an open log has read each partition of the registry."""
_POLLED_AFTER = 1000
_FLUSH_SECONDS = 300
_RECORDS = pa.Table.from_pylist([{"key": b"%010d" % each, "value": b"%0100d" % each} for each in range(10)], RECORDS)


@dataclass(slots=True)
class _Side:
    """A log with earlier jobs, and its only writer."""

    spec: AnySpec
    end: int = 0

    def append_to(self, log: Backend, job: str = "") -> None:
        """Append under a new job name."""
        job = job or f"benchmark-{os.urandom(6).hex()}"
        outcome = append_once(log, 0, _RECORDS, job=job, expected_offset=self.end)
        raise_for_outcome(outcome, 0)
        if isinstance(outcome, Appended):
            self.end = outcome.range.end_offset

    def open_and_append(self) -> None:
        """Open the log, and append under a new job name."""
        with open_log(self.spec) as log:
            self.append_to(log)


def compare_many_jobs_in_directory(scratch: Path, jobs: int, repeats: int) -> list[Result]:
    """Compare logs of one partition, with one chunk, plan and completion per job."""
    scratch.mkdir(parents=True, exist_ok=True)
    sides = [_Side(parse_address(str(scratch / name))) for name in ("many-jobs", "few-jobs")]
    for side, past in zip(sides, (jobs, FEW), strict=True):
        with open_log(side.spec) as log:
            log.create(1)
            _make_past_in_directory(log, side, past)
    # Otherwise the first measured call would wait for unwritten data of the earlier jobs.
    os.sync()
    return _compare("directory", sides, jobs, repeats)


def compare_many_jobs_on_kafka(topics: Topics, jobs: int, repeats: int) -> list[Result]:
    """Compare topics of one partition under two prefixes. The jobs of all topics of a prefix share a registry.

    The earlier jobs have plans and completions, but no ledger entries: a broker finds these by group name.
    """
    sides = []
    for name, past in (("many", jobs), ("few", FEW)):
        spec = parse_address(f"kafka://{topics.address}/{topics.kept(1)}")
        if not isinstance(spec, KafkaSpec):
            raise TypeError(spec)
        spec = replace(spec, prefix=f"benchmark-{name}-jobs")
        sides.append(side := _Side(spec))
        with open_log(spec) as log:
            side.append_to(log, _FIRST)
            _make_past_on_kafka(spec, *_entries_of_first(log), past)
    return _compare("Kafka", sides, jobs, repeats)


def _compare(where: str, sides: list[_Side], jobs: int, repeats: int) -> list[Result]:
    with open_log(sides[0].spec) as many, open_log(sides[1].spec) as few:
        open_p50s = _p50s([lambda: sides[0].append_to(many), lambda: sides[1].append_to(few)], _WARM_UP, repeats)
    reopened_p50s = _p50s([each.open_and_append for each in sides], 2, repeats)
    found = {"open log": open_p50s, "reopened log": reopened_p50s}
    return [
        Result(f"append_once, p50, {where}, {how}: after {jobs:,} jobs / {FEW}", *p50s, "ms", "at least 0.91")
        for how, p50s in found.items()
    ]


def _p50s(works: list[Callable[[], None]], warm_up: int, repeats: int) -> tuple[float, float]:
    """Return the medians, in milliseconds, of two alternating functions."""
    turns = [[1000 * seconds_of(work) for work in works] for _ in range(warm_up + repeats)][warm_up:]
    many, few = (statistics.median(side) for side in zip(*turns, strict=True))
    return many, few


def _make_past_in_directory(log: Backend, side: _Side, jobs: int) -> None:
    """Append the earlier jobs without fsync, which would take most of an hour."""
    with patch("os.fsync"):
        side.append_to(log, _FIRST)
        plan, completion = _entries_of_first(log)
        append = appender(log, 0, _RECORDS)
        for number in range(jobs - 1):
            job = f"load-of-day-{number}"
            log.record_plan(replace(plan, job=job))
            append()
            log.record_completion(replace(completion, job=job))
    side.end = log.bounds(0).end_offset


def _make_past_on_kafka(spec: KafkaSpec, plan: Plan, completion: Completion, jobs: int) -> None:
    """Write the registry records of so many jobs."""
    producer = Producer({"bootstrap.servers": spec.bootstrap_servers, "enable.idempotence": True})
    for number in range(jobs - 1):
        job = f"load-of-day-{number}"
        at = crc32(f"{spec.topic}/{job}".encode()) % JOB_PARTITIONS
        for kind, value in (("plan", replace(plan, job=job)), ("completion", replace(completion, job=job))):
            for key, data in records_of(f"{spec.topic}/{kind}/{job}", to_json(value)):
                producer.produce(spec.registry_topic, data, key, at)
        if number % _POLLED_AFTER == 0:
            producer.flush(_FLUSH_SECONDS)
    if producer.flush(_FLUSH_SECONDS):
        raise TimeoutError("the broker did not take the jobs of the past")


def _entries_of_first(log: Backend) -> tuple[Plan, Completion]:
    """Return the plan and completion of the first job, which the others copy."""
    plan, completion = log.plan(_FIRST), log.completion(_FIRST)
    if plan is None or completion is None:
        raise LookupError(_FIRST)
    return plan, completion
