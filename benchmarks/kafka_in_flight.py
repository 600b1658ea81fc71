"""The gain of several requests in flight with distant brokers: append one chunk with 5 and with 1."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

import pyarrow as pa
from confluent_kafka import Producer

from benchmarks.appending import appender
from benchmarks.kafka_broker import CONF, Topics
from benchmarks.measure import NO_SCRATCH, Result, compare
from benchmarks.slow_network import slow_network
from spark_cas import RECORDS
from spark_cas.core.chunks import ChunkLimits
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from tools.kafka_broker import KafkaBroker
from tools.ports import held_ports

ROUND_TRIP_MS = 5
VALUE_BYTES = (100, 900_000)
"""Value sizes: thousands of the first fit into a request, and one of the second."""
_SECONDS = 60
_MOST = 5


def compare_in_flight(repeats: int) -> list[Result]:
    """Compare appends of a chunk of the default size, through a relay that adds 5 ms to each response.

    Ours has 5 requests in flight, the peer 1. Each has its own partition; the other settings are equal. The last
    comparison uses the bare client without idempotence, which does not keep the order: the limit of the network.
    """
    with ExitStack() as stack:
        [port] = stack.enter_context(held_ports(1))
        broker = stack.enter_context(KafkaBroker(CONF, advertised_port=port, measured=True))
        address = stack.enter_context(slow_network(port, broker.proxied_address, ROUND_TRIP_MS))
        topics = Topics(broker.bootstrap)
        results = []
        for size in VALUE_BYTES:
            rows, topic = _chunk(size), topics.fresh(2)
            logs = {each: stack.enter_context(KafkaLog(_spec(address, topic, each))) for each in (_MOST, 1)}
            sides = [appender(log, at, rows) for at, log in enumerate(logs.values())]
            results.append(_compare(f"Kafka in flight, 5 / 1, values of {size:,} bytes", sides, repeats))
        rows, topic = _chunk(VALUE_BYTES[0]), topics.fresh(2)
        bare = [_bare(address, topic, at, each, rows) for at, each in enumerate((_MOST, 1))]
        results.append(_compare("Kafka in flight, 5 / 1, the bare client without order", bare, repeats))
    return results


def _compare(name: str, sides: list[Callable[[], None]], repeats: int) -> Result:
    ours, peer = sides
    return compare(name, lambda _: ours(), lambda _: peer(), goal="", scratch=NO_SCRATCH, repeats=repeats)


def _spec(address: str, topic: str, in_flight: int) -> KafkaSpec:
    return replace(KafkaSpec(address, topic), client_options=(("max.in.flight", str(in_flight)),))


def _chunk(value_bytes: int) -> pa.Table:
    """Return a full chunk of records with values of this size."""
    count = ChunkLimits().max_bytes // value_bytes
    values = [os.urandom(value_bytes // 2).hex().encode() for _ in range(min(count, 1000))]
    columns = {
        "key": pa.array([b"%010d" % at for at in range(count)], pa.binary()),
        "value": pa.array([values[at % len(values)] for at in range(count)], pa.binary()),
    }
    given = [columns.get(field.name, pa.nulls(count, field.type)) for field in RECORDS]
    return pa.table(given, schema=RECORDS)


def _bare(address: str, topic: str, partition: int, in_flight: int, rows: pa.Table) -> Callable[[], None]:
    """Return a function that sends the same records with the same settings, but without idempotence."""
    producer = Producer(
        {
            "bootstrap.servers": address,
            "acks": "all",
            "batch.size": 1_000_000,
            "linger.ms": 1,
            "log_level": 2,
            "max.in.flight": in_flight,
            "queue.buffering.max.messages": 0,
        }
    )
    keys, values = (rows.column(name).to_pylist() for name in ("key", "value"))

    def append() -> None:
        for key, value in zip(keys, values, strict=True):
            producer.produce(topic, value, key, partition)
        if producer.flush(_SECONDS):
            raise TimeoutError(f"records were not acknowledged within {_SECONDS} s")

    return append
