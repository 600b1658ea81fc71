"""make bench: compare speed and memory with Spark's own Parquet and Kafka. Options: python -m benchmarks --help."""

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.completed import PYTHON, SPARK_SUBMIT, compare_completed
from benchmarks.floors import compare_floors
from benchmarks.kafka_appending import compare_appends
from benchmarks.kafka_broker import running_broker
from benchmarks.kafka_claiming import compare_claims
from benchmarks.kafka_copy import compare_copies
from benchmarks.kafka_in_flight import compare_in_flight
from benchmarks.kafka_in_turn import compare_in_turn
from benchmarks.kafka_killed import compare_killed
from benchmarks.kafka_micro_batch import compare_micro_batches
from benchmarks.kafka_quota import compare_within_quota
from benchmarks.kafka_reading import compare_topic_reads
from benchmarks.kafka_restart import compare_restarts
from benchmarks.kafka_state import compare_states
from benchmarks.kafka_writing import compare_shaped_writes, compare_topic_writes
from benchmarks.many_jobs import compare_many_jobs_in_directory, compare_many_jobs_on_kafka
from benchmarks.measure import Result
from benchmarks.memory import compare_memory
from benchmarks.reading import compare_reads
from benchmarks.report import print_table, write_json
from benchmarks.rows import make_rows
from benchmarks.session import start_session
from benchmarks.sizes import FULL, QUICK, Sizes
from benchmarks.whole_loads import compare_whole_topic_writes, compare_whole_writes
from benchmarks.writing import compare_routes, compare_writes
from tools.kafka_broker.connector import connector_jars

BUILD = Path(__file__).parents[1] / "build"
IN_SESSION = ("write", "whole-write", "route", "read")
ON_KAFKA = (
    "kafka-write",
    "kafka-write-shapes",
    "kafka-whole-write",
    "kafka-in-turn",
    "kafka-read",
    "kafka-state",
    "kafka-copy",
    "kafka-micro-batch",
    "kafka-killed",
    "kafka-append",
    "kafka-many-jobs",
    "floors",
)
WITHOUT_SESSION = ("kafka-append", "kafka-many-jobs")
BESIDE_THE_CONNECTOR = ("kafka-restart", "kafka-quota", *ON_KAFKA)
PARTS = (
    *IN_SESSION,
    "completed",
    "memory",
    "many-jobs",
    "kafka-restart",
    "kafka-in-flight",
    "kafka-claim",
    "kafka-quota",
    *ON_KAFKA,
)


def main(argv: Sequence[str]) -> int:
    """Run the selected parts, print the table and write bench.json."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__, allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="small sizes, only to check that it runs")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    into = "folder for the input, the logs and bench.json (default: build)"
    parser.add_argument("--into", type=Path, default=BUILD, metavar="FOLDER", help=into)
    given = parser.parse_args(argv)
    build = given.into.absolute()
    sizes = QUICK if given.quick else FULL
    # An interrupted run leaves files.
    scratch = build / "bench" / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    rows = build / "bench" / f"rows-{sizes.rows}"
    try:
        results = _run(given.only, sizes, rows, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print_table(results, f"{sizes.rows:,} rows on {os.cpu_count()} cores, medians")
    write_json(results, build / "bench.json")
    return 0


def _run(parts: Sequence[str], sizes: Sizes, rows: Path, scratch: Path) -> list[Result]:
    results = []
    if set(parts) & {*IN_SESSION, "completed"}:
        results += _in_one_session(parts, sizes, rows, scratch)
    if "completed" in parts:
        for name, launcher in (("complete job", PYTHON), ("complete job, spark-submit", SPARK_SUBMIT)):
            results.append(compare_completed(name, launcher, rows, scratch, sizes.process_repeats))
    alone: dict[str, Callable[[], list[Result]]] = {
        "memory": lambda: compare_memory(scratch, sizes.few_rows, sizes.many_rows),
        "many-jobs": lambda: compare_many_jobs_in_directory(scratch, sizes.past_jobs, sizes.job_repeats),
        "kafka-restart": lambda: _restarts(sizes, scratch),
        "kafka-quota": lambda: _within_quota(rows.parent, sizes),
        "kafka-claim": lambda: compare_claims(sizes.job_repeats),
        "kafka-in-flight": lambda: compare_in_flight(sizes.repeats),
    }
    for part, comparison in alone.items():
        if part in parts:
            results += comparison()
    if set(parts) & set(ON_KAFKA):
        results += _on_kafka(parts, sizes, rows, scratch)
    return results


def _in_one_session(parts: Sequence[str], sizes: Sizes, path: Path, scratch: Path) -> list[Result]:
    """Make the input, and run the comparisons that share one session."""
    # The parts on Kafka use the same JVM, which loads jars only when it starts.
    spark = start_session(connector_jars() if set(parts) & {*BESIDE_THE_CONNECTOR} else ())
    try:
        rows = make_rows(spark, path, sizes.rows)
        results = []
        if "write" in parts:
            results.append(compare_writes(rows, scratch, sizes.repeats))
        if "whole-write" in parts:
            results.append(compare_whole_writes(rows, scratch, sizes.repeats))
        if "route" in parts:
            results.append(compare_routes(rows, scratch, sizes.repeats))
        if "read" in parts:
            results.append(compare_reads(spark, rows, scratch, sizes.repeats))
        return results
    finally:
        spark.stop()


def _restarts(sizes: Sizes, scratch: Path) -> list[Result]:
    """Run the comparison through a proxy that counts requests."""
    spark = start_session(connector_jars())
    try:
        return compare_restarts(spark, scratch, sizes.repeats)
    finally:
        spark.stop()


def _within_quota(folder: Path, sizes: Sizes) -> list[Result]:
    """Run the comparison on three brokers with producer quotas."""
    spark = start_session(connector_jars())
    try:
        return [compare_within_quota(spark, folder, sizes.process_repeats)]
    finally:
        spark.stop()


def _on_kafka(parts: Sequence[str], sizes: Sizes, path: Path, scratch: Path) -> list[Result]:
    """Run the comparisons on one broker, in a session with Spark's own connector."""
    results = []
    with running_broker() as topics:
        if "kafka-append" in parts:
            results += compare_appends(topics, sizes.appends)
        if "kafka-many-jobs" in parts:
            results += compare_many_jobs_on_kafka(topics, sizes.past_jobs, sizes.job_repeats)
        if set(parts) & {*ON_KAFKA} <= {*WITHOUT_SESSION}:
            return results
        spark = start_session(connector_jars())
        try:
            rows = make_rows(spark, path, sizes.rows)
            comparisons: dict[str, Callable[[], list[Result]]] = {
                "kafka-write": lambda: compare_topic_writes(rows, topics, sizes.repeats),
                "kafka-write-shapes": lambda: compare_shaped_writes(spark, path.parent, topics, sizes.repeats),
                "kafka-whole-write": lambda: [compare_whole_topic_writes(rows, topics, sizes.repeats)],
                "kafka-in-turn": lambda: compare_in_turn(rows, topics),
                "kafka-read": lambda: compare_topic_reads(spark, rows, topics, sizes.repeats),
                "kafka-state": lambda: [compare_states(spark, rows, topics, sizes.repeats)],
                "kafka-copy": lambda: compare_copies(spark, rows, topics, scratch, sizes.repeats),
                "kafka-micro-batch": lambda: compare_micro_batches(
                    spark, path.parent, topics, scratch, sizes.process_repeats
                ),
                "floors": lambda: compare_floors(rows, path.parent, topics, scratch, sizes.process_repeats),
                "kafka-killed": lambda: [compare_killed(spark, rows, topics, sizes.process_repeats)],
            }
            for part, comparison in comparisons.items():
                if part in parts:
                    results += comparison()
        finally:
            spark.stop()
    return results


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
