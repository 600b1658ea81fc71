"""Success and duration of many writes in one application, which alternate between ours and Spark's own sink."""

import statistics
from collections.abc import Callable

from pyspark.sql import DataFrame

from benchmarks.kafka_broker import Topics
from benchmarks.kafka_writing import append_to, sink_into
from benchmarks.measure import Result, seconds_of
from benchmarks.rows import in_partitions

WRITES = 20


def compare_in_turn(rows: DataFrame, topics: Topics, writes: int = WRITES) -> list[Result]:
    """Time ``writes`` writes of half of the rows for each side, after one warm-up write.

    If a write fails, the benchmark ends with its error.
    """
    half = rows.sample(fraction=0.5, seed=1)
    sides: dict[str, Callable[[], None]] = {
        "ours": lambda: append_to(in_partitions(half), topics.options(topics.fresh())),
        "peer": lambda: sink_into(in_partitions(half), topics.options(topics.fresh())),
    }
    took: dict[str, list[float]] = {side: [] for side in sides}
    for write in sides.values():
        write()
    for turn in range(writes):
        for side, write in sides.items():
            took[side].append(seconds_of(write))
            print(f"Kafka writes in turn, {side}, {turn + 1} of {writes}: {took[side][-1]:.2f} s", flush=True)
    ours, peer = took["ours"], took["peer"]
    return [
        Result("Kafka writes in turn, median", statistics.median(ours), statistics.median(peer), "s", "none"),
        Result("Kafka writes in turn, slowest", max(ours), max(peer), "s", "at most twice the median"),
    ]
