"""Concurrent loads: one waits for the other or fails before its first row. However one ends, the next can begin."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import functions as sf

from spark_cas import error_from_text, open_log, route
from spark_cas.core.errors import ConflictError, LoadInProgressError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.log.load.locking import Applicant, acquire_lock, process_name, release_lock
from tests.long import full
from tests.spark.session_settings import session_settings

pytestmark = pytest.mark.spark

ROWS = 2_000


def rows_of(spark, name):
    key = sf.concat(sf.lit(name), sf.col("id").cast("string"))
    return spark.range(ROWS).select(key.alias("key"), key.alias("value"))


def save(frame, path, **options):
    options = {"path": path, "maxRecordsPerChunk": "200", **options}
    route(frame, options).write.format("conditional-log").mode("append").options(**options).save()


def at_work(log, job="other"):
    """Acquire a lock for all partitions, as another load of this process."""
    lock = acquire_lock(log, Applicant(job, "run", process_name(os.getpid())), ExpectedOffsets("end"))
    assert lock is not None
    return lock


def rows_loaded(log, job):
    completion = log.completion(job)
    return None if completion is None else completion.rows


def jobs_in(log, partition):
    bounds = log.bounds(partition)
    return [
        value[:1].decode()
        for _, records in log.read(partition, bounds.range, ("value",))
        for value in records.column("value").to_pylist()
    ]


@pytest.mark.parametrize("times", [2, *full(20)])
def test_concurrent_loads_run_one_after_the_other(spark, log, path, times):
    with ThreadPoolExecutor(2) as threads, open_log(path) as opened:
        before = [0] * opened.layout().partitions
        for round_ in range(times):
            loads = [threads.submit(save, rows_of(spark, name), path, job=f"{name}-{round_}") for name in "ab"]
            for each in loads:
                each.result()
            orders = set()
            for partition, seen in enumerate(before):
                names = jobs_in(opened, partition)[seen:]
                before[partition] += len(names)
                orders.add("".join(dict.fromkeys(names)))
                assert names == sorted(names, key="".join(dict.fromkeys(names)).index)
            assert len(orders) == 1, "the loads ran one after the other in all partitions"
            assert sum(before) == 2 * ROWS * (round_ + 1)
        assert opened.load_locks().held == ()


def test_named_offsets_are_rejected_during_another_load(spark, log, path):
    with open_log(path) as opened:
        at_work(opened)
        with pytest.raises(Exception, match=r"\[LOAD_IN_PROGRESS\]") as caught:
            save(rows_of(spark, "a"), path, job="mine", expectedOffsets='{"0": 0}')
        error = error_from_text(str(caught.value))
        assert isinstance(error, LoadInProgressError)
        assert "job 'other' has had the load lock of partitions 0 to" in error.message
        assert opened.plan("mine") is None


def test_lock_wait_lasts_as_long_as_the_option(spark, log, path):
    with open_log(path) as opened:
        lock = at_work(opened)
        ended: list[float] = []

        def end():
            time.sleep(3)
            ended.append(time.monotonic())
            release_lock(opened, lock)

        ending = threading.Thread(target=end)
        ending.start()
        save(rows_of(spark, "a"), path, job="mine", expectedOffsets='{"0": 0}', lockWaitTimeout="60s")
        assert ended
        ending.join()
        assert rows_loaded(opened, "mine") == ROWS


@pytest.mark.parametrize("how", ["its task fails", "it is refused"])
def test_failed_load_does_not_block_others(spark, log, path, how):
    save(rows_of(spark, "a"), path, job="first")
    with open_log(path) as opened:
        if how == "its task fails":
            # Fail after the shuffle: Spark has planned the load by then.
            failing = sf.when(sf.col("key") == "b1999", sf.raise_error(sf.lit("out of order"))).otherwise(
                sf.col("key")
            )
            routed = route(rows_of(spark, "b"), {"path": path, "job": "second"}).withColumn("value", failing)
            with pytest.raises(Exception, match="out of order"):
                routed.write.format("conditional-log").mode("append").options(path=path, job="second").save()
            assert opened.plan("second") is not None
        else:
            with pytest.raises(Exception, match=r"\[CONFLICT\]") as caught:
                save(rows_of(spark, "b"), path, job="second", expectedOffsets='{"0": 0}')
            assert isinstance(error_from_text(str(caught.value)), ConflictError)
        assert opened.load_locks().held == ()
        save(rows_of(spark, "b"), path, job="third", lockWaitTimeout="0s")


def test_unchecked_load_does_not_wait(spark, log, path):
    with open_log(path) as opened:
        at_work(opened)
        save(rows_of(spark, "a"), path, job="mine", expectedOffsets="none")
        assert rows_loaded(opened, "mine") == ROWS


@pytest.mark.full
def test_load_runs_again_after_spark_killed_the_worker_that_waited_for_the_lock(spark, log, path):
    lock = at_work(log)
    idle = "spark.sql.execution.pyspark.udf."
    settings = {f"{idle}killOnIdleTimeout": "true", f"{idle}idleTimeoutSeconds": "5"}
    with (
        session_settings(spark, settings),
        pytest.warns(UserWarning, match="wait 3750 s"),
        pytest.raises(Exception, match="worker process terminated due to idle timeout"),
    ):
        save(rows_of(spark, "a"), path, job="a")
    assert jobs_in(log, 0) == []
    release_lock(log, lock)
    save(rows_of(spark, "a"), path, job="a")
    assert rows_loaded(log, "a") == ROWS
