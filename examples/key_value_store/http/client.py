"""A client of the store: it goes from node to node, to the one that leads, within one deadline."""

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, assert_never
from urllib.parse import urlencode

from key_value_store.http.exchange import NoReplyError, NotSentError, Reply, exchange
from key_value_store.http.verdict import (
    AskElsewhere,
    Done,
    NotDone,
    Refused,
    Unclear,
    Verdict,
    document_in,
    nobody_did,
    nobody_knows,
    verdict_of,
)
from key_value_store.http.wire import (
    MOST_BODY_BYTES,
    TRANSACTIONS,
    Transaction,
    host_and_port,
    path_of_key,
    tag_of,
    transaction_json,
    version_of_tag,
    versions_of,
)
from key_value_store.values import ABSENT, ANY, Expected, Versioned
from spark_cas.core.errors import VersionMismatchError

REQUEST_SECONDS = 10.0
_READ_SECONDS = 2.0
"""A node that does not answer a read for so long is passed over."""
_PAUSE_SECONDS = 0.1
_MOST_HOPS = 4

_CHANCE = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    reads: bool = False
    once: bool = False
    """Of a write: however often it is sent, it is done once, for the version that it expects never comes back."""

    def __post_init__(self) -> None:
        if len(self.body) > MOST_BODY_BYTES:
            msg = f"a request has a body of at most {MOST_BODY_BYTES} bytes, got {len(self.body)}"
            raise ValueError(msg)


class Client:
    """A client of the nodes at ``host:port``. Threads may use it at once; it keeps no connection open."""

    def __init__(self, nodes: Sequence[str]) -> None:
        """``nodes`` are tried in turn; those that lead are found from any of them. Raises ValueError."""
        wrong = [each for each in nodes if host_and_port(each) is None]
        if wrong or not nodes:
            msg = f"expected nodes as host:port, one at least, got {', '.join(wrong) or 'none'}"
            raise ValueError(msg)
        self._nodes = list(nodes)

    def get(self, key: bytes, *, stale: bool = False, timeout: float = REQUEST_SECONDS) -> Versioned:
        """What a key holds; raises as `Node.get`, and StorageError when within ``timeout`` no node answered."""
        query = {"stale": "true"} if stale else {}
        reply = self._ask(_Request("GET", path_of_key(key), query=query, reads=True), timeout)
        if reply.status == HTTPStatus.NOT_FOUND:
            return ABSENT
        return Versioned(reply.body, version_of_tag(reply.headers.get("ETag", "")))

    def put(
        self, key: bytes, value: bytes, *, expected_version: Expected = ANY, timeout: float = REQUEST_SECONDS
    ) -> int:
        """Set a key, if it has the expected version, and return its new version. Raises as `Node.put`.

        An outcome that is not known is told. Only a write that expects a version of a key that is there is sent
        again then: it cannot be done twice.
        """
        return int(self._write("PUT", key, value, expected_version, timeout)["version"])

    def delete(self, key: bytes, *, expected_version: Expected = ANY, timeout: float = REQUEST_SECONDS) -> int:
        """Remove a key, if it has the expected version, and return the offset of the deletion. Raises as `put`."""
        return int(self._write("DELETE", key, b"", expected_version, timeout)["offset"])

    def transact(
        self,
        writes: Mapping[bytes, bytes | None],
        expected_versions: Mapping[bytes, Expected] | None = None,
        *,
        timeout: float = REQUEST_SECONDS,
    ) -> dict[bytes, int]:
        """Write keys of any shards in one step, or none of them; None deletes a key. Raises as `Node.transact`."""
        body = transaction_json(Transaction(writes, expected_versions or {}))
        headers = {"Content-Type": "application/json"}
        return versions_of(document_in(self._ask(_Request("POST", TRANSACTIONS, body, headers), timeout)))

    def _write(self, method: str, key: bytes, value: bytes, expected: Expected, timeout: float) -> dict[str, Any]:
        headers = {}
        if expected is None:
            headers["If-None-Match"] = "*"
        elif expected is not ANY:
            headers["If-Match"] = tag_of(expected)
        once = isinstance(expected, int)
        request = _Request(method, path_of_key(key), value, headers, once=once)
        try:
            return document_in(self._ask(request, timeout))
        except VersionMismatchError as error:
            raise VersionMismatchError(error.message, key, error.actual) from None

    def _ask(self, request: _Request, timeout: float) -> Reply:
        """The reply of whoever may answer. Raises the error that it tells of."""
        deadline = time.monotonic() + timeout
        unclear = last = ""
        for node in self._in_turn(deadline):
            verdict, node_asked = _follow(node, request, deadline)
            match verdict:
                case Done(reply):
                    return reply
                case AskElsewhere():
                    last = f"node {node_asked}: it does not lead the shard"
                case NotDone(why):
                    last = f"node {node_asked}: {why}"
                case Refused(error):
                    if unclear:
                        raise nobody_knows(f"{unclear}. Asked again, that was refused, maybe because it was done")
                    raise error
                case Unclear(why):
                    last = f"node {node_asked}: {why}"
                    if not request.reads:
                        unclear = last
                case _:
                    assert_never(verdict)
            if unclear and not request.once:
                break
        raise nobody_knows(unclear) if unclear else nobody_did(timeout, last)

    def _in_turn(self, deadline: float) -> Iterator[str]:
        """The nodes, over and over until the deadline, with a pause after each round."""
        pause = 0.0
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(pause * _CHANCE.uniform(0.5, 1.5), left))
            yield from self._nodes
            pause = _PAUSE_SECONDS


def _follow(node: str, request: _Request, deadline: float) -> tuple[Verdict, str]:
    """What comes of asking a node, and those that it sends to; and the last that was asked."""
    for _ in range(_MOST_HOPS):
        try:
            verdict = verdict_of(_exchange(node, request, deadline), reads=request.reads)
        except NotSentError as error:
            return NotDone(str(error)), node
        except NoReplyError as error:
            return Unclear(str(error)), node
        if not isinstance(verdict, AskElsewhere):
            break
        node = verdict.address
    return verdict, node


def _exchange(node: str, request: _Request, deadline: float) -> Reply:
    now = time.monotonic()
    until = min(deadline, now + _READ_SECONDS) if request.reads else deadline
    # The node gives up a little earlier, so that what it tells arrives.
    left = max(0.001, (until - now) * 0.9)
    path = f"{request.path}?{urlencode({**request.query, 'timeout': f'{left:.3f}'})}"
    return exchange(node, request.method, path, deadline=until, body=request.body, headers=request.headers)
