"""A stream over 1,000 partitions that restarts from its checkpoint, compared with Spark's own source."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from benchmarks.kafka_broker import CONF, Topics
from benchmarks.measure import Result, seconds_of
from tests.kafka.proxy.rig import Proxied, proxied_broker

PARTITIONS = 1000
FEW = 10
"""Partitions with a new record. In the other case all have one, for which Spark's own source takes minutes."""
_SECONDS = 60
_FORMATS = {"ours": "conditional-log", "peer": "kafka"}


@dataclass(frozen=True, slots=True)
class _Restart:
    seconds: float
    requests: float
    """Requests per partition of the topic."""


def compare_restarts(spark: SparkSession, scratch: Path, repeats: int) -> list[Result]:
    """Compare restarts with new records in some partitions. A proxy counts the requests."""
    results = []
    with proxied_broker(CONF) as proxied:
        streams = _Streams(spark, proxied, scratch)
        streams.restart(FEW)
        for new, turns in ((FEW, repeats), (PARTITIONS, 1)):
            found = [streams.restart(new) for _ in range(turns)]
            name = f"Kafka restart, {new:,} of {PARTITIONS:,} partitions with a new record"
            results.append(_result(name, found, "s", lambda one: one.seconds))
            results.append(_result(f"{name}, per partition", found, "requests", lambda one: one.requests))
    return results


def _result(name: str, turns: list[dict[str, _Restart]], unit: str, figure: Callable[[_Restart], float]) -> Result:
    ours, peer = (statistics.median(figure(turn[side]) for turn in turns) for side in _FORMATS)
    print(f"{name}: {ours:.3f} {unit}, peer {peer:.3f}", flush=True)
    return Result(name, ours, peer, unit, "")


class _Streams:
    """The streams of both sides over the same topic, each with its own checkpoint."""

    def __init__(self, spark: SparkSession, proxied: Proxied, scratch: Path) -> None:
        self._spark = spark
        self._proxied = proxied
        self._scratch = scratch
        self._topic = Topics(proxied.direct).kept(PARTITIONS)
        self._producer = Producer({"bootstrap.servers": proxied.direct})

    def restart(self, new: int) -> dict[str, _Restart]:
        """Append a record to each of ``new`` partitions, then restart both sides one after the other."""
        for partition in range(new):
            self._producer.produce(self._topic, b"value", partition=partition)
        if self._producer.flush(_SECONDS):
            raise TimeoutError(f"records were not acknowledged within {_SECONDS} s")
        return {side: self._one(side) for side in _FORMATS}

    def _one(self, side: str) -> _Restart:
        self._proxied.proxy.clear()
        seconds = seconds_of(partial(self._run, side))
        return _Restart(seconds, sum(self._proxied.proxy.traffic.requests.values()) / PARTITIONS)

    def _run(self, side: str) -> None:
        where = {"kafka.bootstrap.servers": self._proxied.bootstrap, "subscribe": self._topic}
        if side == "peer":
            where["kafka.isolation.level"] = "read_committed"
        reader = self._spark.readStream.format(_FORMATS[side]).options(**where, startingOffsets="earliest")
        writer = reader.load().writeStream.format("noop").option("checkpointLocation", str(self._scratch / side))
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
