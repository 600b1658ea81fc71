"""The memory of a Python worker, which must not grow with the rows of a partition."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.measure import Result
from benchmarks.rows import one_partition
from benchmarks.session import start_session
from benchmarks.workers import WorkerPeak
from benchmarks.writing import append

_GOAL = "flat: 1, ours at most about 500"


def compare_memory(scratch: Path, few: int, many: int) -> list[Result]:
    """Compare the peaks of an append to one partition and of a read: ours is with many rows, the peer with few.

    No session may be running.
    """
    log = scratch / "one-partition"
    writes, reads = [], []
    for rows in (few, many):
        shutil.rmtree(log, ignore_errors=True)
        writes.append(_peak_of(partial(_write, log=log, rows=rows)))
        reads.append(_peak_of(partial(_read, log=log)))
        print(f"memory, {rows:,} rows: write {writes[-1]:.0f} MiB, read {reads[-1]:.0f} MiB", flush=True)
    shutil.rmtree(log, ignore_errors=True)
    return [
        Result("memory, write", writes[1], writes[0], "MiB", _GOAL),
        Result("memory, read", reads[1], reads[0], "MiB", _GOAL),
    ]


def _peak_of(work: Callable[[SparkSession], None]) -> float:
    """Return the peak of ``work`` in new workers, in MiB."""
    spark = start_session()
    try:
        with WorkerPeak() as peak:
            work(spark)
    finally:
        spark.stop()
    return peak.mib


def _write(spark: SparkSession, log: Path, rows: int) -> None:
    append(one_partition(spark, rows), log, partitions=1)


def _read(spark: SparkSession, log: Path) -> None:
    spark.read.format("conditional-log").load(str(log)).write.format("noop").mode("overwrite").save()
