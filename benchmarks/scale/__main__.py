"""make bench-scale: the growth of costs with rows, partitions, chunks and executors; docs/growth.md has the results.

Each part is measured at all of its sizes in turn. Its results replace those in scale.json, and the results of other
parts stay there. The pictures show all results.
"""

import argparse
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.kafka_broker import running_broker
from benchmarks.scale.chunks import grow_chunks
from benchmarks.scale.executors import grow_executors
from benchmarks.scale.report import draw_all, print_tables, read_json, write_json
from benchmarks.scale.requests import count_requests
from benchmarks.scale.rows import grow_partitions, grow_rows, in_directories, in_topics
from benchmarks.scale.series import Series
from benchmarks.scale.sizes import FULL, QUICK, ScaleSizes
from benchmarks.session import start_session
from tools.kafka_broker.connector import connector_jars

BUILD = Path(__file__).parents[2] / "build"
PARTS = ("rows", "partitions", "chunks", "executors", "kafka-rows", "kafka-partitions")
REQUESTS = "requests"


def main(argv: Sequence[str]) -> int:
    """Run the selected parts, print tables, write scale.json and draw pictures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__, allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="small sizes, only to check that it runs")
    every = (*PARTS, REQUESTS)
    parser.add_argument("--only", nargs="+", choices=every, default=every, metavar="PART", help=", ".join(every))
    into = "folder for the input, the logs, scale.json and the pictures (default: build)"
    parser.add_argument("--into", type=Path, default=BUILD, metavar="FOLDER", help=into)
    given = parser.parse_args(argv)
    build = given.into.absolute()
    scratch = build / "bench" / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    found = read_json(build / "scale.json")
    try:
        for part in PARTS:
            if part in given.only:
                found[part] = _measured(part, QUICK if given.quick else FULL, build / "bench", scratch)
                write_json(found, build / "scale.json")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print_tables({part: found[part] for part in given.only if part in found})
    draw_all(found, build / "growth")
    if REQUESTS in given.only:
        for each in count_requests():
            print(each.step, {kind: round(count, 2) for kind, count in each.each.items()})
    return 0


# The sessions share a JVM, which loads Spark's own connector only at its start. So each session configures it.
def _measured(part: str, sizes: ScaleSizes, folder: Path, scratch: Path) -> list[Series]:
    scratch.mkdir(parents=True, exist_ok=True)
    measured: dict[str, Callable[[], list[Series]]] = {
        "rows": lambda: _rows(sizes, folder, scratch),
        "partitions": lambda: _partitions(sizes, folder, scratch),
        "chunks": lambda: grow_chunks(scratch, sizes.chunks, sizes.steps),
        "executors": lambda: grow_executors(scratch, folder, sizes.spread_rows, sizes.executors),
        "kafka-rows": lambda: _kafka_rows(sizes, folder),
        "kafka-partitions": lambda: _kafka_partitions(sizes, folder),
    }
    return measured[part]()


def _rows(sizes: ScaleSizes, folder: Path, scratch: Path) -> list[Series]:
    spark = start_session(connector_jars())
    try:
        return grow_rows(spark, folder, in_directories(scratch), sizes.rows)
    finally:
        spark.stop()


def _partitions(sizes: ScaleSizes, folder: Path, scratch: Path) -> list[Series]:
    spark = start_session(connector_jars())
    try:
        return grow_partitions(spark, folder, sizes.fixed_rows, in_directories(scratch), sizes.partitions)
    finally:
        spark.stop()


def _kafka_rows(sizes: ScaleSizes, folder: Path) -> list[Series]:
    with running_broker() as topics:
        spark = start_session(connector_jars())
        try:
            return grow_rows(spark, folder, in_topics(topics), sizes.rows)
        finally:
            spark.stop()


def _kafka_partitions(sizes: ScaleSizes, folder: Path) -> list[Series]:
    with running_broker() as topics:
        spark = start_session(connector_jars())
        try:
            return grow_partitions(spark, folder, sizes.fixed_rows, in_topics(topics), sizes.partitions)
        finally:
            spark.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
