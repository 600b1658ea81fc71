"""The latency of the first chunk in a partition with distant brokers, compared with a bare transaction."""

import statistics
from functools import partial

from benchmarks.kafka_appending import bare_transaction, records_to_append
from benchmarks.kafka_broker import CONF, Topics
from benchmarks.measure import Result, seconds_of
from benchmarks.slow_network import slow_network
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.plan import Plan
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.load.planning import pin_plan
from tests.support.writing import JobWriter
from tools.kafka_broker import KafkaBroker
from tools.ports import held_ports

ROUND_TRIP_MS = 5
_WARM_UP = 10


def compare_claims(repeats: int) -> list[Result]:
    """Compare the claim and append of a task in a connected worker with a bare transaction.

    The peer creates a transactional producer for one transaction of the same records. A relay adds 5 ms to each
    response.
    """
    with (
        held_ports(1) as [port],
        KafkaBroker(CONF, advertised_port=port, measured=True) as broker,
        slow_network(port, broker.proxied_address, ROUND_TRIP_MS) as address,
    ):
        turns = _WARM_UP + repeats
        topic = Topics(broker.bootstrap).kept(turns)
        spec = KafkaSpec(address, topic)
        with KafkaLog(spec, pooled=True) as log:
            plan = pin_plan(log, "benchmark", ExpectedOffsets.parse("end"))
        seconds = [
            (seconds_of(partial(_claim_and_append, spec, plan, turn)), seconds_of(partial(_bare, address, topic)))
            for turn in range(turns)
        ][_WARM_UP:]
    ours, peer = (1000 * statistics.median(side) for side in zip(*seconds, strict=True))
    return [Result("Kafka claim and append, 5 ms away, p50", ours, peer, "ms", "none")]


def _claim_and_append(spec: KafkaSpec, plan: Plan, partition: int) -> None:
    with KafkaLog(spec, pooled=True) as log:
        JobWriter(log, plan, partition).append(records_to_append())


def _bare(address: str, topic: str) -> None:
    bare_transaction(address, topic)()
