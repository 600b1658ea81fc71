"""A client of the store. It tries the nodes in turn and follows redirects to the leader, within one deadline."""

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, assert_never
from urllib.parse import urlencode

from key_value_store.errors import VersionMismatchError
from key_value_store.http.access import Access
from key_value_store.http.exchange import NoReplyError, NotSentError, Reply, exchange
from key_value_store.http.verdict import (
    Done,
    NotDone,
    Redirected,
    Refused,
    Unclear,
    Verdict,
    document_in,
    no_node_error,
    unknown_outcome_error,
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

REQUEST_SECONDS = 10.0
_READ_SECONDS = 2.0
"""If a node does not answer a read within this time, the client tries the next node."""
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
    """The write expects an existing version, which never returns. Several attempts therefore write at most once."""

    def __post_init__(self) -> None:
        if len(self.body) > MOST_BODY_BYTES:
            msg = f"expected a body of at most {MOST_BODY_BYTES} bytes, got {len(self.body)}"
            raise ValueError(msg)


class Client:
    """A client of the nodes at ``host:port``. Several threads may use it; it keeps no connection open."""

    def __init__(self, nodes: Sequence[str], access: Access | None = None) -> None:
        """Create a client that tries ``nodes`` in turn and follows their redirects. Raises ValueError.

        The client sends a value or a token only to these nodes, because any writer to the log can name a leader.
        """
        invalid = [each for each in nodes if host_and_port(each) is None]
        if invalid or not nodes:
            msg = f"expected at least one node as host:port, got {', '.join(invalid) or 'none'}"
            raise ValueError(msg)
        self._nodes = list(nodes)
        self._access = access or Access()

    def get(self, key: bytes, *, stale: bool = False, timeout: float = REQUEST_SECONDS) -> Versioned:
        """Return the value and version of a key.

        Raises the errors of `Node.get`, and StorageError if no node answered within ``timeout`` seconds.
        """
        query = {"stale": "true"} if stale else {}
        reply = self._send(_Request("GET", path_of_key(key), query=query, reads=True), timeout)
        if reply.status == HTTPStatus.NOT_FOUND:
            return ABSENT
        return Versioned(reply.body, version_of_tag(reply.headers.get("ETag", "")))

    def put(
        self, key: bytes, value: bytes, *, expected_version: Expected = ANY, timeout: float = REQUEST_SECONDS
    ) -> int:
        """Set a key if it has the expected version, and return its new version. Raises the errors of `Node.put`.

        If the outcome is unknown, the client raises UnknownOutcomeError. It retries only a write that expects an
        existing version, because the store cannot execute this write twice.
        """
        return int(self._write("PUT", key, value, expected_version, timeout)["version"])

    def delete(self, key: bytes, *, expected_version: Expected = ANY, timeout: float = REQUEST_SECONDS) -> int:
        """Delete a key if it has the expected version, and return the offset of the deletion.

        Raises the errors of `put`.
        """
        return int(self._write("DELETE", key, b"", expected_version, timeout)["offset"])

    def transact(
        self,
        writes: Mapping[bytes, bytes | None],
        expected_versions: Mapping[bytes, Expected] | None = None,
        *,
        timeout: float = REQUEST_SECONDS,
    ) -> dict[bytes, int]:
        """Write keys of any shards atomically, and return the new version of each key. None deletes a key.

        Raises the errors of `Node.transact`.
        """
        body = transaction_json(Transaction(writes, expected_versions or {}))
        headers = {"Content-Type": "application/json"}
        return versions_of(document_in(self._send(_Request("POST", TRANSACTIONS, body, headers), timeout)))

    def _write(self, method: str, key: bytes, value: bytes, expected: Expected, timeout: float) -> dict[str, Any]:
        headers = {}
        if expected is None:
            headers["If-None-Match"] = "*"
        elif expected is not ANY:
            headers["If-Match"] = tag_of(expected)
        once = isinstance(expected, int)
        request = _Request(method, path_of_key(key), value, headers, once=once)
        try:
            return document_in(self._send(request, timeout))
        except VersionMismatchError as error:
            raise VersionMismatchError(error.message, key, error.actual) from None

    def _send(self, request: _Request, timeout: float) -> Reply:
        """Return the reply of the first node that executes the request. Raises the error in a final reply."""
        deadline = time.monotonic() + timeout
        unclear = last = ""
        for node in self._node_rounds(deadline):
            verdict, last_node = self._follow(node, request, deadline)
            match verdict:
                case Done(reply):
                    return reply
                case Redirected():
                    last = f"node {last_node} does not lead the shard"
                case NotDone(reason):
                    last = f"node {last_node}: {reason}"
                case Refused(error):
                    if unclear:
                        raise unknown_outcome_error(
                            f"{unclear}. A retry was rejected, perhaps because the first attempt succeeded"
                        )
                    raise error
                case Unclear(reason):
                    last = f"node {last_node}: {reason}"
                    if not request.reads:
                        unclear = last
                case _:
                    assert_never(verdict)
            if unclear and not request.once:
                break
        raise unknown_outcome_error(unclear) if unclear else no_node_error(timeout, last)

    def _node_rounds(self, deadline: float) -> Iterator[str]:
        """Yield the nodes in turn until the deadline, with a pause after each round."""
        pause = 0.0
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(pause * _CHANCE.uniform(0.5, 1.5), left))
            yield from self._nodes
            pause = _PAUSE_SECONDS

    def _follow(self, node: str, request: _Request, deadline: float) -> tuple[Verdict, str]:
        """Send a request to a node, follow its redirects, and return the verdict and the last node."""
        secret = bool(request.body or self._access.token)
        for _ in range(_MOST_HOPS):
            try:
                verdict = verdict_of(self._exchange(node, request, deadline), reads=request.reads)
            except NotSentError as error:
                return NotDone(str(error)), node
            except NoReplyError as error:
                return Unclear(str(error)), node
            if not isinstance(verdict, Redirected):
                break
            if secret and verdict.address not in self._nodes:
                msg = f"the leader {verdict.address} is not one of the client's nodes: name all. Nothing was written"
                return Refused(ValueError(msg)), node
            node = verdict.address
        return verdict, node

    def _exchange(self, node: str, request: _Request, deadline: float) -> Reply:
        now = time.monotonic()
        until = min(deadline, now + _READ_SECONDS) if request.reads else deadline
        # The node times out a little earlier, so that its reply arrives in time.
        left = max(0.001, (until - now) * 0.9)
        path = f"{request.path}?{urlencode({**request.query, 'timeout': f'{left:.3f}'})}"
        return exchange(
            node,
            request.method,
            path,
            deadline=until,
            body=request.body,
            headers=request.headers,
            access=self._access,
        )
