"""Clusters of Kafka nodes in a temporary folder."""

import secrets
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self

from tools.kafka_broker.keeper import Keeper
from tools.kafka_broker.listeners import BROKER, CONTROLLER, PROXIED, Listener
from tools.kafka_broker.node import FORMAT_SECONDS, KafkaNode
from tools.kafka_broker.waiting import BrokerFailedError, end_of
from tools.ports import held_ports


class KafkaCluster:
    """A Kafka cluster. Each node is a controller and a broker.

    With three or more nodes, acknowledged records survive the loss of one node. Use the cluster as a context manager:
    it starts on entry and waits until each node knows all others. On exit, or if this process is killed, it stops all
    processes and removes the folder.

    Args:
        conf: a folder with ``server.properties`` and ``log4j2.properties``
        nodes: the number of nodes
        settings: broker settings, which override ``server.properties``
        advertised_ports: a port per node for a second listener that advertises this port to clients. The caller
          reserves the port (`tools.ports`) for a proxy that forwards to `KafkaNode.proxied_address`.
        secured: names and protocols of further listeners, such as ``{"SASL": "SASL_PLAINTEXT"}``, for
          `KafkaNode.address_at`
        classes: a folder with further Java classes for the nodes
        heap_mb: the maximum heap of a node in MiB
        measured: use all compilers of the JVM. By default nodes use only the first one, which starts faster.
        port: the port for clients of the first node, if it is free. By default, and otherwise, it is any free port.
    """

    def __init__(
        self,
        conf: Path,
        nodes: int = 3,
        *,
        settings: Mapping[str, str] | None = None,
        advertised_ports: Sequence[int] = (),
        secured: Mapping[str, str] | None = None,
        classes: Path | None = None,
        heap_mb: int = 384,
        measured: bool = False,
        port: int | None = None,
    ) -> None:
        if advertised_ports and len(advertised_ports) != nodes:
            raise ValueError(f"{nodes} nodes need as many advertised ports, not {len(advertised_ports)}")
        self._conf = conf.resolve()
        self._settings = {**_replication(nodes), **(settings or {})}
        self._advertised_ports = tuple(advertised_ports)
        self._secured = dict(secured or {})
        self._classes = classes
        self._heap_mb = heap_mb
        self._measured = measured
        self._port = port
        self._count = nodes
        self._folder: Path | None = None
        self._keeper: Keeper | None = None
        self._held = ExitStack()
        self.nodes: tuple[KafkaNode, ...] = ()
        """The nodes by ascending id, from 1."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """Value of the client setting ``bootstrap.servers``."""
        return ",".join(node.address for node in self.nodes)

    @property
    def folder(self) -> Path:
        """Folder of the running cluster. Raises ValueError if the cluster is not started."""
        if self._folder is None:
            raise ValueError("the cluster is not started")
        return self._folder

    def node(self, node_id: int) -> KafkaNode:
        """Return the node with this id, as Kafka's metadata reports it for leaders and coordinators."""
        return self.nodes[node_id - 1]

    def start(self) -> None:
        """Format and start all nodes.

        Without the context manager, the caller must call `close`, also after a failure.
        """
        if self._folder is not None:
            raise ValueError("the cluster is started already")
        self._folder = Path(tempfile.mkdtemp(prefix="spark-cas-kafka-")).resolve()
        self._keeper = Keeper(self._folder)
        each = 3 + len(self._secured)
        ports = iter(self._held.enter_context(held_ports(each * self._count, self._port)))
        self.nodes = tuple(self._new_node(number, *islice(ports, each)) for number in range(1, self._count + 1))
        voters = ",".join(node.voter for node in self.nodes)
        for node in self.nodes:
            node.write_settings(voters, self._settings)
        self._format()
        for node in self.nodes:
            node.begin_start()
        everyone = frozenset(node.id for node in self.nodes)
        for node in self.nodes:
            node.wait_until_alive(everyone)

    def close(self) -> None:
        """Kill all nodes and remove the folder. No orderly shutdown is necessary, because the data is removed."""
        for node in self.nodes:
            node.kill()
        self._held.close()
        if self._folder is not None:
            shutil.rmtree(self._folder)
            self._folder = None
        if self._keeper is not None:
            self._keeper.dismiss()
            self._keeper = None

    def _new_node(self, number: int, broker: int, controller: int, proxied: int, *secured: int) -> KafkaNode:
        listeners = [Listener(CONTROLLER, controller, controller), Listener(BROKER, broker, broker)]
        if self._advertised_ports:
            listeners.append(Listener(PROXIED, proxied, self._advertised_ports[number - 1]))
        for (name, protocol), port in zip(self._secured.items(), secured, strict=True):
            listeners.append(Listener(name, port, port, protocol))
        folder = self.folder / f"node-{number}"
        return KafkaNode(
            number,
            folder,
            self._conf,
            listeners,
            classes=self._classes,
            heap_mb=self._heap_mb,
            measured=self._measured,
        )

    def _format(self) -> None:
        cluster_id = f"A{secrets.token_urlsafe(16)[1:]}"  # Kafka rejects ids that start with a dash
        with ExitStack() as cleanup:
            tools = [cleanup.enter_context(node.formatting(cluster_id)) for node in self.nodes]
            for tool in tools:
                said, _ = tool.communicate(timeout=FORMAT_SECONDS)
                if tool.returncode != 0:
                    raise BrokerFailedError(f"a data folder could not be formatted:\n{end_of(said)}")


class KafkaBroker(KafkaCluster):
    """A cluster with one node, and the methods of that node."""

    def __init__(
        self,
        conf: Path,
        *,
        settings: Mapping[str, str] | None = None,
        advertised_port: int | None = None,
        secured: Mapping[str, str] | None = None,
        classes: Path | None = None,
        heap_mb: int = 512,
        measured: bool = False,
        port: int | None = None,
    ) -> None:
        ports = () if advertised_port is None else (advertised_port,)
        super().__init__(
            conf,
            1,
            settings=settings,
            advertised_ports=ports,
            secured=secured,
            classes=classes,
            heap_mb=heap_mb,
            measured=measured,
            port=port,
        )

    def address_at(self, listener: str) -> str:
        """Return `KafkaNode.address_at` of the node."""
        return self.node(1).address_at(listener)

    @property
    def proxied_address(self) -> str:
        """`KafkaNode.proxied_address` of the node."""
        return self.node(1).proxied_address

    def kill(self) -> None:
        """Call `KafkaNode.kill` of the node."""
        self.node(1).kill()

    def restart(self) -> None:
        """Call `KafkaNode.restart` of the node."""
        self.node(1).restart()

    def freeze(self) -> None:
        """Call `KafkaNode.freeze` of the node."""
        self.node(1).freeze()

    def thaw(self) -> None:
        """Call `KafkaNode.thaw` of the node."""
        self.node(1).thaw()


def _replication(nodes: int) -> dict[str, str]:
    replicas, in_sync = str(min(nodes, 3)), str(min(nodes, 2))
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
    }
