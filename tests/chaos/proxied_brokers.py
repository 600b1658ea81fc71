"""A topic on three brokers, each accessed through a proxy that injects faults."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from spark_cas.log.backend import Backend
from spark_cas.log.open import open_log
from tests.chaos.brokers import ALL, LOSING, NodeFault, Nodes, OnTheWay, Outdated, of_no_broker
from tests.chaos.faults import Fault
from tests.chaos.late import LateInTheNext
from tests.chaos.world import World
from tests.kafka.clients import create_topic
from tests.kafka.faulted import spec_of
from tests.kafka.proxy.frames import Api
from tests.kafka.proxy.rules import Fault as ProxyFault
from tests.kafka.proxy.rules import naming
from tests.kafka.proxy.server import Proxy
from tools.kafka_broker import KafkaCluster, KafkaNode
from tools.kafka_broker.listeners import PROXIED
from tools.ports import held_ports

CONF = Path(__file__).parents[2] / "conf" / "kafka"
_NODES = 3
_SETTINGS = {
    # Requests between brokers use the proxies too, so that transaction markers can be late.
    "inter.broker.listener.name": PROXIED,
    # This is about as long as the request timeout of a client, as in production, and shorter than many freezes. A
    # leader that was demoted while frozen therefore still answers the requests that it received.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
}


@dataclass(frozen=True)
class Brokers:
    """The topic. ``open`` bypasses all faults; clients open the log through the world."""

    world: World
    faults: dict[str, Fault]
    open: Callable[[], Backend]
    calm: Callable[[], None]
    heal: Callable[[], None]


@contextmanager
def proxied_brokers(folder: Path, partitions: int, pace: float = 0.05) -> Iterator[Brokers]:
    """Yield a log in a topic with replication factor 3 and min.insync.replicas 2. Its world is written."""
    with ExitStack() as stack:
        ports = stack.enter_context(held_ports(_NODES))
        cluster = stack.enter_context(
            KafkaCluster(CONF, _NODES, settings=_SETTINGS, advertised_ports=ports, heap_mb=256)
        )
        proxies = [
            stack.enter_context(Proxy(port, node.proxied_address))
            for port, node in zip(ports, cluster.nodes, strict=True)
        ]
        topic = create_topic(cluster.bootstrap, partitions)
        world = World(folder, ",".join(each.bootstrap for each in proxies), topic, pace=pace)
        world.write()
        nodes = Nodes(cluster.nodes)
        spec = spec_of(cluster.bootstrap, topic)
        of_whole_loads = naming(spec.id_of_atomic_load(""))
        late_commits = LateInTheNext(proxies, spec, partitions, Api.END_TXN, Api.TXN_OFFSET_COMMIT)
        late_entries = LateInTheNext(proxies, spec, partitions, Api.TXN_OFFSET_COMMIT, Api.END_TXN)
        faults: dict[str, Fault] = {
            "kill-node": NodeFault(nodes, KafkaNode.kill, KafkaNode.begin_start),
            "freeze-node": NodeFault(nodes, KafkaNode.freeze, KafkaNode.thaw),
            "reset": OnTheWay(proxies, ProxyFault.RESET_BEFORE_REQUEST, (None,), where=of_no_broker),
            "reset-reply": OnTheWay(proxies, ProxyFault.RESET_BEFORE_RESPONSE),
            "drop-reply": OnTheWay(proxies, ProxyFault.DROP_RESPONSE, LOSING),
            "lost-commit": OnTheWay(proxies, ProxyFault.DROP_RESPONSE, (Api.END_TXN,), times=ALL),
            "late-records": OnTheWay(proxies, ProxyFault.HOLD_REQUEST, (Api.PRODUCE,), where=of_whole_loads),
            "late-request": OnTheWay(proxies, ProxyFault.HOLD_REQUEST),
            "late-reply": OnTheWay(proxies, ProxyFault.HOLD_RESPONSE),
            "late-marker": OnTheWay(proxies, ProxyFault.HOLD_REQUEST, (Api.WRITE_TXN_MARKERS,)),
            "late-commit": late_commits,
            "late-entry": late_entries,
            "outdated": Outdated(proxies, topic),
        }

        def calm() -> None:
            if not (late_commits.is_under_way or late_entries.is_under_way):
                for each in proxies:
                    each.clear()

        def heal() -> None:
            for node in cluster.nodes:
                if not node.is_running:
                    node.begin_start()
            everyone = frozenset(node.id for node in cluster.nodes)
            for node in cluster.nodes:
                node.wait_until_alive(everyone)

        with open_log(spec) as log:
            log.create(partitions)
            log.bounds_of(range(partitions), waiting=True)
        yield Brokers(world, faults, lambda: open_log(spec), calm, heal)
