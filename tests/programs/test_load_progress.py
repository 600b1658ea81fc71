"""The progress of a bulk load that waits for the lock of another load."""

import pytest

from spark_cas import open_log, route
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.log.load.locking import Applicant, acquire_lock, release_lock
from spark_cas.log.open import parse_address
from spark_cas.programs import load_progress
from spark_cas.programs.load_progress import LedgerWatch, Stages, StageWatch
from spark_cas.spark.writing.end_markers import end_markers_of
from tests.support.loads import rows_of, run_job
from tools.kafka_broker.waiting import wait_until

END = ExpectedOffsets("end")


def test_a_load_says_for_whom_it_waits_until_it_has_a_lock_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(load_progress, "_QUIET_SECONDS", 0)
    spec = parse_address(str(tmp_path / "flights"))
    with open_log(spec) as log:
        log.create(2)
        first = acquire_lock(log, Applicant("first", "run"), END)
        watch = LedgerWatch(spec, "second")
        watch._responded_at += 3600  # simulate an immediate response
        assert watch.rows() == 0
        watch._responded_at += 3600
        assert watch.waiting() == "waiting for job first, which is at work, since 0 s"
        release_lock(log, first)
        acquire_lock(log, Applicant("second", "run"), END)
        assert watch.rows() == 0
        watch._responded_at += 3600
        assert watch.waiting() is None


def test_a_load_that_has_rows_waits_for_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(load_progress, "_QUIET_SECONDS", 0)
    spec = parse_address(str(tmp_path / "flights"))
    with open_log(spec) as log:
        log.create(2)
        acquire_lock(log, Applicant("first", "run"), END)
        run_job(log, "second", rows_of(3, 0))
        watch = LedgerWatch(spec, "second")
        assert [watch.rows() for _ in range(2)] == [3, 3]
        watch._blocking = None
        assert watch.rows() == 3
        assert watch._blocking is None


@pytest.mark.spark
def test_progress_does_not_count_end_markers(spark, tmp_path):
    rows = spark.range(10).selectExpr("CAST(id AS STRING) AS key", "'x' AS value")
    routed = route(rows, {"path": str(tmp_path / "flights"), "partitions": 3})
    watch = StageWatch(spark, "load", end_markers_of(routed))
    assert len(routed.collect()) == 13

    def is_done() -> bool:
        stages = watch.stages()
        return isinstance(stages, Stages) and stages.routed and stages.rows == 10

    wait_until(is_done, 30, lambda: str(watch.stages()))
