"""Faults of a Kafka cluster: killed and frozen brokers, and faults of requests and responses on the network."""

import random
import time
from collections.abc import Callable, Sequence

from tests.chaos.faults import Undo
from tests.chaos.world import READERS
from tests.kafka.proxy.frames import Api, Request
from tests.kafka.proxy.rules import OLD_SECONDS, Rule, Where, anywhere
from tests.kafka.proxy.rules import Fault as ProxyFault
from tests.kafka.proxy.server import Proxy
from tools.kafka_broker import KafkaNode
from tools.kafka_broker.waiting import BrokerFailedError

WRITING = (
    Api.INIT_PRODUCER_ID,
    Api.ADD_PARTITIONS_TO_TXN,
    Api.PRODUCE,
    Api.ADD_OFFSETS_TO_TXN,
    Api.TXN_OFFSET_COMMIT,
    *[Api.END_TXN] * 5,
)
"""The requests of a writer. The commit has the same weight as all others together, because a lost response to it is
most likely to cause a violation."""
LOSING = tuple(api for api in WRITING if api not in {Api.ADD_PARTITIONS_TO_TXN, Api.ADD_OFFSETS_TO_TXN})
"""The requests that may lose a response on a connection that stays open. The other two are left out.
If one of them loses its response and the following abort does not, librdkafka (2.16) fails an assertion when the
client closes, and the process ends. A real network does not cause this."""
_A_FEW = (1, 2, 3)
ALL = (None,)
"""The rule applies for as long as the fault lasts, so a client may give up its request."""
_READ_SECONDS = 0.2


class Nodes:
    """The nodes of a cluster. At most one is faulty at a time: without a majority, no client would make progress."""

    def __init__(self, nodes: Sequence[KafkaNode]) -> None:
        self.nodes = nodes
        self.unwell: KafkaNode | None = None

    def take(self, chance: random.Random) -> KafkaNode | None:
        """Return a node for a fault. Return None if another is faulty, or is still starting, which takes seconds."""
        if self.unwell is not None or not all(self._is_back(each) for each in self.nodes):
            return None
        self.unwell = chance.choice(self.nodes)
        return self.unwell

    def _is_back(self, node: KafkaNode) -> bool:
        try:
            node.wait_until_alive(frozenset(each.id for each in self.nodes), _READ_SECONDS)
        except BrokerFailedError:
            return False
        return True

    def let_go(self) -> None:
        """Mark the node as recovered."""
        self.unwell = None


class NodeFault:
    """Kill or freeze a broker; at the end, restart or resume it."""

    def __init__(self, nodes: Nodes, strike: Callable[[KafkaNode], None], go_on: Callable[[KafkaNode], None]) -> None:
        self._nodes = nodes
        self._strike = strike
        self._go_on = go_on

    def begin(self, chance: random.Random, seconds: float) -> tuple[str, Undo] | None:
        node = self._nodes.take(chance)
        if node is None:
            return None
        self._strike(node)

        def end() -> None:
            self._go_on(node)
            self._nodes.let_go()

        return f"node-{node.id}", end


class OnTheWay:
    """Lose, delay or cut off some requests of one type that a writer sends, or their responses, at each broker."""

    def __init__(
        self,
        proxies: Sequence[Proxy],
        fault: ProxyFault,
        apis: Sequence[int | None] = WRITING,
        *,
        where: Where = anywhere,
        times: Sequence[int | None] = _A_FEW,
    ) -> None:
        self._proxies = proxies
        self._fault = fault
        self._apis = apis
        self._where = where
        self._times = times

    def begin(self, chance: random.Random, seconds: float) -> tuple[str, Undo] | None:
        api = chance.choice(self._apis)
        times = chance.choice(self._times)
        nth = 1 if times is None else chance.choice(_A_FEW)
        rules = [each.add(self._fault, api, nth=nth, times=times, where=self._where) for each in self._proxies]

        return "any request" if api is None else Api(api).name.lower(), lambda: _release(rules)


def of_no_broker(request: Request) -> bool:
    """Select the requests of all clients except brokers, which fetch all the time."""
    return not request.client_id.startswith("broker-")


class Outdated:
    """Make a broker report old end offsets, as a demoted leader does that does not know of its demotion yet.

    All clients except readers are affected, because a read from such a broker may legally return fewer records. Only
    the log's own topic is affected, not the topics with its state. Either one broker has this fault for some time, or
    each broker has it for a client that has just claimed a partition.
    """

    def __init__(self, proxies: Sequence[Proxy], topic: str) -> None:
        self._proxies = proxies
        self._topic = topic

    def begin(self, chance: random.Random, seconds: float) -> tuple[str, Undo] | None:
        at = chance.randrange(2 * len(self._proxies))
        if at < len(self._proxies):
            rules = [self._outdated(self._proxies[at])]
            return f"broker {at + 1}", lambda: _release(rules)
        claims = _Claims()
        rules = [self._outdated(each, claims.lately_by) for each in self._proxies]
        rules += [each.add(ProxyFault.WATCH, Api.INIT_PRODUCER_ID, where=claims.note) for each in self._proxies]
        return "all brokers", lambda: _release(rules)

    def _outdated(self, proxy: Proxy, deposed_for: Where | None = None) -> Rule:
        return proxy.add(
            ProxyFault.OLD_RESPONSE, Api.LIST_OFFSETS, times=None, where=self.concerns, deposed_for=deposed_for
        )

    def concerns(self, request: Request) -> bool:
        """Return whether this request may get an old response."""
        # The topics with the state of a log are named after it, followed by a dot.
        beside = f"{self._topic}.".encode() in request.frame
        return of_no_broker(request) and request.client_id not in READERS and not beside


class _Claims:
    """The clients that claimed a partition a moment ago."""

    def __init__(self) -> None:
        self._old_until: dict[str, float] = {}

    def note(self, request: Request) -> bool:
        """Record that a client requests a producer id, as it does to claim a partition; select every such request."""
        self._old_until[request.client_id] = time.monotonic() + OLD_SECONDS
        return True

    def lately_by(self, request: Request) -> bool:
        """Return whether the client of this request claimed a partition a moment ago."""
        return time.monotonic() < self._old_until.get(request.client_id, 0)


def _release(rules: Sequence[Rule]) -> None:
    for each in rules:
        each.release()
