"""What a node's server does with requests for a shard that another node leads.

Who asks is sent to the leader as long as that one answers and can lead; if not, this node takes the shard over and
does what was asked. A node by itself cannot decide that: it sees the log only, and a leader that nobody writes to
leaves nothing there for days.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from key_value_store.http.exchange import NoReplyError, NotSentError, exchange
from key_value_store.http.wire import HEALTH, host_and_port
from key_value_store.node import Node
from spark_cas.core.errors import NotLeaderError

PROBE_SECONDS = 1.0
"""A leader that does not answer for so long is taken for dead: wrongly, that costs a change of leaders, no write."""

_TRUSTED_SECONDS = 0.5

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Another node is to be asked, and answers."""

    address: str


class Redirecting:
    """One node, for requests that come from anybody. Threads may call it at once."""

    def __init__(self, node: Node, address: str) -> None:
        self._node = node
        self._address = address
        self._answered: dict[tuple[str, int], float] = {}

    def ask(self, key: bytes, call: Callable[[float], Result], timeout: float) -> Result | Elsewhere:
        """Do ``call``, which takes the seconds that are left, at the leader of the key's shard.

        Raises what it raises; NotLeaderError when within ``timeout`` seconds nobody led.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                return call(max(0.0, deadline - time.monotonic()))
            except NotLeaderError as error:
                leader = error.leader
                if leader is None or leader == self._address:
                    raise
                shard = self._node.shard_of(key)
                if self._leads(leader, shard, deadline):
                    return Elsewhere(leader)
                if time.monotonic() >= deadline:
                    raise
                self._take_over(shard, deadline)

    def _take_over(self, shard: int, deadline: float) -> None:
        try:
            self._node.lead(shard, timeout=max(0.0, deadline - time.monotonic()))
        except NotLeaderError as error:
            # Another was faster: whoever asked is sent there next.
            if error.leader is None or time.monotonic() >= deadline:
                raise

    def _leads(self, address: str, shard: int, deadline: float) -> bool:
        """Whether the node of this address answers, under this address, and does not say that the shard fails there.

        An answer holds for half a second.
        """
        now, asked = time.monotonic(), (address, shard)
        if now - self._answered.get(asked, -_TRUSTED_SECONDS) < _TRUSTED_SECONDS:
            return True
        if host_and_port(address) is None:
            return False
        try:
            reply = exchange(address, "GET", HEALTH, deadline=min(deadline, now + PROBE_SECONDS), headers={})
            told = json.loads(reply.body)
            leads = bool(told["node"] == address) and shard not in told["failing"]
        except (NotSentError, NoReplyError, ValueError, KeyError, TypeError):
            leads = False
        if leads:
            self._answered = {asked: time.monotonic()} | {
                each: at for each, at in self._answered.items() if each != asked and now - at < _TRUSTED_SECONDS
            }
        return leads
