"""Faults of a Kafka cluster: nodes that die or stand still, and what happens on the way to them."""

import random
import time
from collections.abc import Callable, Sequence

from spark_cas.testing.kafka_broker import KafkaNode
from spark_cas.testing.kafka_broker.waiting import BrokerFailedError
from tests.chaos.faults import Undo
from tests.chaos.world import READERS
from tests.kafka.proxy.frames import Api, Request
from tests.kafka.proxy.rules import OLD_SECONDS, Rule, Where, anywhere
from tests.kafka.proxy.rules import Fault as ProxyFault
from tests.kafka.proxy.server import Proxy

WRITING = (
    Api.INIT_PRODUCER_ID,
    Api.ADD_PARTITIONS_TO_TXN,
    Api.PRODUCE,
    Api.ADD_OFFSETS_TO_TXN,
    Api.TXN_OFFSET_COMMIT,
    *[Api.END_TXN] * 5,
)
"""What a writer asks, the commit as often as all else: a lost reply to it is what promises are broken by."""
LOSING = tuple(api for api in WRITING if api not in {Api.ADD_PARTITIONS_TO_TXN, Api.ADD_OFFSETS_TO_TXN})
"""What may lose a reply on a connection that stays. Where one to the others is lost, and that to the abort behind it
is not, librdkafka (2.16) ends the process by an assertion once the client is let go of: no network does that."""
_A_FEW = (1, 2, 3)
ALL = (None,)
"""As long as the fault lasts, in which a client may give up what it asks for."""
_LOOK_SECONDS = 0.2


class Nodes:
    """The nodes of a cluster. One at a time is unwell: a majority is to stay, or nothing goes on to be tested."""

    def __init__(self, nodes: Sequence[KafkaNode]) -> None:
        self.nodes = nodes
        self.unwell: KafkaNode | None = None

    def take(self, chance: random.Random) -> KafkaNode | None:
        """A node to do something to, None while another is unwell or not yet back, which takes seconds."""
        if self.unwell is not None or not all(self._is_back(each) for each in self.nodes):
            return None
        self.unwell = chance.choice(self.nodes)
        return self.unwell

    def _is_back(self, node: KafkaNode) -> bool:
        try:
            node.wait_until_alive(frozenset(each.id for each in self.nodes), _LOOK_SECONDS)
        except BrokerFailedError:
            return False
        return True

    def let_go(self) -> None:
        """It is well again."""
        self.unwell = None


class NodeFault:
    """A broker is struck, and goes on at the end: as one that is started again, or with all that it knew."""

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
    """Some requests of a kind that a writer makes, or their replies, are lost, late or cut off, at each broker."""

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
    """What is asked by others than brokers, whose fetches never rest."""
    return not request.client_id.startswith("broker-")


class Outdated:
    """A broker says of partitions where they end as of then, as one does that was deposed and has not heard of it.

    To all clients but readers, for a reader who asks such a broker sees no more than that knows; and of the log's own
    topic alone, not of what is recorded beside it. It is deposed at any time, or each as a writer claims a partition.
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
        """Whether it is one that may be told what is old."""
        # What is recorded of a log is in topics named after its own, with a dot between.
        beside = f"{self._topic}.".encode() in request.frame
        return of_no_broker(request) and request.client_id not in READERS and not beside


class _Claims:
    """Which clients claimed a partition a moment ago."""

    def __init__(self) -> None:
        self._old_until: dict[str, float] = {}

    def note(self, request: Request) -> bool:
        """That a client asks for a producer's id, as it does to claim one; every such request counts."""
        self._old_until[request.client_id] = time.monotonic() + OLD_SECONDS
        return True

    def lately_by(self, request: Request) -> bool:
        """Whether it is of a client that did."""
        return time.monotonic() < self._old_until.get(request.client_id, 0)


def _release(rules: Sequence[Rule]) -> None:
    for each in rules:
        each.release()
