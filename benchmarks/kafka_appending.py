"""How long a small conditional append takes, against a bare transaction of the same records."""

import os
import statistics
import time
from collections.abc import Callable

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.kafka_broker import Topics
from benchmarks.measure import Result, seconds_of
from spark_cas import RECORDS, open_log, raise_for_outcome
from spark_cas.core.chunks import Chunk
from spark_cas.core.digest import RunningDigest
from spark_cas.core.outcome import Appended
from spark_cas.core.plan import ExpectedOffsets
from spark_cas.log.planning import pin_plan
from spark_cas.log.protocol import Backend, Claim

RECORDS_EACH = 10
_WARM_UP = 20
_SECONDS = 30


def compare_appends(topics: Topics, appends: int) -> list[Result]:
    """Both append to a partition that they hold, turn by turn, and wait until all is acknowledged.

    The peer neither looks where the partition ends nor whether its records are visible.
    """
    topic = topics.fresh(2)
    with open_log(f"kafka://{topics.address}/{topic}") as log:
        sides = (_conditional(log), _bare(topics.address, topic))
        seconds = [[seconds_of(side) for side in sides] for _ in range(_WARM_UP + appends)][_WARM_UP:]
    ours, peer = ([1000 * each for each in side] for side in zip(*seconds, strict=True))
    return [
        Result("Kafka append, p50", _percentile(ours, 50), _percentile(peer, 50), "ms", "ours at most 5"),
        Result("Kafka append, p99", _percentile(ours, 99), _percentile(peer, 99), "ms", "none"),
    ]


def _percentile(values: list[float], which: int) -> float:
    return statistics.quantiles(values, n=100)[which - 1]


def _conditional(log: Backend) -> Callable[[], None]:
    """An append of ours, which expects the end that the one before left."""
    plan = pin_plan(log, f"benchmark-{os.urandom(6).hex()}", ExpectedOffsets.parse("end"))
    granted = log.claim(0, plan)
    if not isinstance(granted, Claim):
        raise TypeError(granted)
    claim: Claim = granted
    digest = RunningDigest()
    values = [b"%0100d" % i for i in range(RECORDS_EACH)]
    rows = pa.Table.from_pylist([{"key": value[-10:], "value": value} for value in values], RECORDS)

    def append() -> None:
        nonlocal claim
        for batch in rows.to_batches():
            digest.update(batch)
        now_ms = time.time_ns() // 1_000_000
        chunk = Chunk(rows, digest.rows, digest.hexdigest(), complete=False, task="benchmark/0", time_ms=now_ms)
        outcome = log.append(claim, chunk)
        raise_for_outcome(outcome, 0)
        if isinstance(outcome, Appended):
            claim = claim.after(chunk, outcome.range)

    return append


def _bare(address: str, topic: str) -> Callable[[], None]:
    """A transaction of the same records and a group's offset, as the client's own documentation shows it."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": f"{topic}-bare", "linger.ms": 5})
    member = Consumer({"bootstrap.servers": address, "group.id": f"{topic}-bare"})
    producer.init_transactions(_SECONDS)
    values = [b"%0100d" % i for i in range(RECORDS_EACH)]

    def append() -> None:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, value[-10:], 1)
        producer.flush(_SECONDS)
        producer.send_offsets_to_transaction(
            [TopicPartition(topic, 1, 1)], member.consumer_group_metadata(), _SECONDS
        )
        producer.commit_transaction(_SECONDS)

    return append
