"""Rows that a topic removes before the end of their load: the report counts them, and the driver logs them."""

import logging

import pyarrow as pa
import pytest

from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.plan import PartitionResult, Plan
from spark_cas.core.records import RECORDS
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.load.append_rows import append_rows
from spark_cas.log.load.planning import complete_job, pin_plan
from spark_cas.programs.load_report import complete_rows
from spark_cas.spark.writing import write
from tests.kafka.clients import SECONDS, create_topic
from tests.kafka.test_idempotence import ROWS, planned
from tests.support.loads import LIMITS, TEN, run_job
from tools.kafka_broker.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


@pytest.fixture
def spec(broker) -> KafkaSpec:
    topic = create_topic(broker.bootstrap)
    return KafkaSpec(broker.bootstrap, topic, topic)


def removed_by(log: KafkaLog, job: str) -> int:
    held = complete_rows(log, job)
    assert held is not None
    return sum(held.removed or ())


def test_of_a_load_that_kept_all_rows_none_is_reported(spec):
    with KafkaLog(spec) as log:
        run_job(log, "before", TEN)
        log.trim(0, log.bounds(0).end_offset)
        run_job(log, "job", TEN)
        assert removed_by(log, "job") == 0


def append_old(log: KafkaLog, job: str) -> tuple[Plan, tuple[PartitionResult, ...]]:
    """Append ten rows of 1970, without completing the job."""
    rows = pa.RecordBatch.from_pylist([{"key": b"k", "value": b"v", "timestamp": 1}] * 10, schema=RECORDS)
    plan = pin_plan(log, job, ExpectedOffsets.parse("none"))
    return plan, append_rows(log, plan, [(0, rows)], task="t", limits=LIMITS, fenced_retry_wait_seconds=1.0)


def test_rows_that_retention_removed_are_reported(sick):
    topic = create_topic(sick.bootstrap, retention_ms="60000")
    with KafkaLog(KafkaSpec(sick.bootstrap, topic, topic)) as log:
        plan, results = append_old(log, "job")
        wait_until(lambda: log.bounds(0).start_offset > 0, SECONDS, lambda: "nothing was removed")
        complete_job(log, plan, results)
        assert 0 < removed_by(log, "job") <= 10


def test_the_driver_logs_rows_that_were_removed_during_the_load(spec, caplog, monkeypatch):
    monkeypatch.setattr(write, "task_number", lambda: 0)
    writer = planned(spec, job="job")
    message = writer.write(iter([ROWS]))
    with KafkaLog(spec) as log:
        log.trim(0, log.bounds(0).end_offset)
    with caplog.at_level(logging.WARNING, "spark_cas"):
        writer.commit([message])
    assert [each.args for each in caplog.records] == [(1, 1, "job")]


@pytest.mark.parametrize(("retention_ms", "warned"), [("60000", 1), ("-1", 0)])
def test_rows_older_than_retention_are_logged_once(broker, caplog, retention_ms, warned):
    topic = create_topic(broker.bootstrap, retention_ms=retention_ms)
    with KafkaLog(KafkaSpec(broker.bootstrap, topic, topic)) as log, caplog.at_level(logging.WARNING, "spark_cas"):
        for job in ("one", "another"):
            append_old(log, job)
    assert [each.args for each in caplog.records] == [(topic, 60_000)] * warned
