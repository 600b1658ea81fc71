"""How the server of a node handles requests for a shard that another node leads.

If the leader responds and can lead, the server redirects the client to it. Otherwise this node takes over the shard
and executes the request. A node cannot decide this without requests to the leader: it only reads the log, and an idle
leader appends no records.
"""

import json
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

from key_value_store.errors import NotLeaderError
from key_value_store.http.access import Access
from key_value_store.http.exchange import NoReplyError, NotSentError, exchange
from key_value_store.http.wire import HEALTH, host_and_port
from key_value_store.node import Node

PROBE_SECONDS = 1.0
"""A leader that does not answer within this time counts as failed. A wrong decision loses no write."""

_TRUSTED_SECONDS = 0.5

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class RedirectTo:
    """The client must send its request to this node, which responds."""

    address: str


class Redirecting:
    """Executes requests of clients at one node, or redirects them. Several threads may call it."""

    def __init__(self, node: Node, address: str, nodes: Collection[str], access: Access) -> None:
        self._node = node
        self._address = address
        # Any writer to the log can name a leader. Without a list, and without a token to protect, all are possible.
        self._known = {*nodes, address} if nodes or access.token else None
        self._access = access
        self._healthy_at: dict[tuple[str, int], float] = {}

    def execute(self, key: bytes, call: Callable[[float], Result], timeout: float) -> Result | RedirectTo:
        """Run ``call`` if this node leads the shard of the key, or return the leader.

        Args:
            key: The key.
            call: The request. Its argument is the remaining time in seconds.
            timeout: In seconds.

        Raises:
            NotLeaderError: No node became the leader in time. All other errors are those of ``call``.
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
                    return RedirectTo(leader)
                if time.monotonic() >= deadline:
                    raise
                self._take_over(shard, deadline)

    def _take_over(self, shard: int, deadline: float) -> None:
        try:
            self._node.lead(shard, timeout=max(0.0, deadline - time.monotonic()))
        except NotLeaderError as error:
            # Another node took over first. The server redirects the client to it next.
            if error.leader is None or time.monotonic() >= deadline:
                raise

    def _leads(self, address: str, shard: int, deadline: float) -> bool:
        """Return whether the node responds under this address and does not report the shard as failing.

        A positive answer is valid for half a second. An address that is not in the list of nodes gets no request.
        """
        if self._known is not None and address not in self._known:
            return False
        now, target = time.monotonic(), (address, shard)
        if now - self._healthy_at.get(target, -_TRUSTED_SECONDS) < _TRUSTED_SECONDS:
            return True
        if host_and_port(address) is None:
            return False
        try:
            until = min(deadline, now + PROBE_SECONDS)
            reply = exchange(address, "GET", HEALTH, deadline=until, headers={}, access=self._access)
            health = json.loads(reply.body)
            leads = bool(health["node"] == address) and shard not in health["failing"]
        except (NotSentError, NoReplyError, ValueError, KeyError, TypeError):
            leads = False
        if leads:
            self._healthy_at = {target: time.monotonic()} | {
                each: at for each, at in self._healthy_at.items() if each != target and now - at < _TRUSTED_SECONDS
            }
        return leads
