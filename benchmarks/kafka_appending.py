"""The latency of a small conditional append, compared with a bare transaction of the same records."""

import statistics
from collections.abc import Callable

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.appending import appender
from benchmarks.kafka_broker import Topics
from benchmarks.measure import Result, seconds_of
from spark_cas import RECORDS, open_log

RECORDS_EACH = 10
_WARM_UP = 20
_SECONDS = 30


def compare_appends(topics: Topics, appends: int) -> list[Result]:
    """Compare appends to a claimed partition. The sides alternate, and wait until all records are acknowledged.

    The peer checks neither the end offset of the partition nor whether its records are visible.
    """
    topic = topics.fresh(2)
    with open_log(f"kafka://{topics.address}/{topic}") as log:
        sides = (appender(log, 0, records_to_append()), bare_transaction(topics.address, topic))
        seconds = [[seconds_of(side) for side in sides] for _ in range(_WARM_UP + appends)][_WARM_UP:]
    ours, peer = ([1000 * each for each in side] for side in zip(*seconds, strict=True))
    return [
        Result("Kafka append, p50", _percentile(ours, 50), _percentile(peer, 50), "ms", "ours at most 5"),
        Result("Kafka append, p99", _percentile(ours, 99), _percentile(peer, 99), "ms", "none"),
    ]


def _percentile(values: list[float], which: int) -> float:
    return statistics.quantiles(values, n=100)[which - 1]


def records_to_append() -> pa.Table:
    """Return a few small records."""
    return pa.Table.from_pylist([{"key": value[-10:], "value": value} for value in _values()], RECORDS)


def bare_transaction(address: str, topic: str) -> Callable[[], None]:
    """Return a transaction of the same records and a group's offset, as in the documentation of the client.

    This call creates the producer, and fences the previous one.
    """
    producer = Producer({"bootstrap.servers": address, "transactional.id": f"{topic}-bare", "linger.ms": 5})
    member = Consumer({"bootstrap.servers": address, "group.id": f"{topic}-bare"})
    producer.init_transactions(_SECONDS)
    values = _values()

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


def _values() -> list[bytes]:
    return [b"%0100d" % i for i in range(RECORDS_EACH)]
