"""The faults of a proxy: rules that tests add, watch and release.

Only the faults `OLD_RESPONSE` and `DELAY_REQUEST` depend on time.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from enum import Enum, auto

from tests.kafka.proxy.frames import Request, in_answer_to, without_correlation_id

OLD_SECONDS = 0.5
"""How long clients read old responses: less than the time for which those with a timeout of two seconds retry."""

DELAY_SECONDS = 0.8
"""The delay of a request by `Fault.DELAY_REQUEST`: longer than a reader polls before it checks for progress."""


class Fault(Enum):
    """The fault that a rule applies to a request that it takes.

    A held frame delays all later frames of its connection, as a slow network does.
    """

    WATCH = auto()
    """No fault: the rule only reports that the request arrived, and that it was answered."""
    HOLD_REQUEST = auto()
    """The broker gets it when the rule is released, even if its client has disconnected by then."""
    DELAY_REQUEST = auto()
    """The broker gets it after `DELAY_SECONDS`, as on a slow network."""
    HOLD_RESPONSE = auto()
    """The broker handles it; its client gets the response when the rule is released."""
    DROP_RESPONSE = auto()
    """The broker handles it; its client never gets the response, on a connection that stays open."""
    DROP_REQUEST = auto()
    """The broker never gets it. It gets later requests, because the connection stays open."""
    FAIL_RESPONSE = auto()
    """The broker handles a Produce or EndTxn request; its client reads that it failed, with the rule's error."""
    EMPTY_METADATA = auto()
    """The broker handles a Metadata request; its client reads that no broker is alive."""
    OLD_RESPONSE = auto()
    """The broker handles it; its client reads the first response to an equal request, as from a demoted leader that
    does not know it yet. This affects the requests that the rule's ``deposed_for`` selects. Without that, it lasts on
    each connection for `OLD_SECONDS` after the response first differs."""
    RESET_BEFORE_REQUEST = auto()
    """The connection breaks, and the broker never gets it."""
    RESET_BEFORE_RESPONSE = auto()
    """The broker handles it; then the connection breaks instead of carrying the response."""


class Moment:
    """An event that happens once, and that a test waits for."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._event = threading.Event()

    def wait(self, seconds: float) -> None:
        """Wait until it has happened. Raises TimeoutError, so that no caller can forget to check."""
        if not self._event.wait(seconds):
            raise TimeoutError(f"{self._name}: not within {seconds} s")

    @property
    def has_come(self) -> bool:
        return self._event.is_set()

    def come(self) -> None:
        self._event.set()


Where = Callable[[Request], bool]
"""Selects the requests that a rule counts, among those of its API."""


def anywhere(_request: Request) -> bool:
    """Select every request."""
    return True


def of_client(client_id: str) -> Where:
    """Select the requests of clients with this ``client.id``."""
    return lambda request: request.client_id == client_id


def naming(text: str) -> Where:
    """Select the requests that contain this text: a topic, a group or a transactional id."""
    return lambda request: text.encode() in request.frame


class Rule:
    """A fault for the ``nth`` request of an API that clients send from now on, and the ``times - 1`` after it.

    ``api`` None means every API, ``times`` None all later requests. The rule counts only requests that satisfy
    ``where``, and counts retries. Proxies create rules: see `Proxy.add`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fault: Fault,
        api: int | None,
        *,
        nth: int = 1,
        times: int | None = 1,
        where: Where = anywhere,
        error: int = 0,
        deposed_for: Where | None = None,
    ) -> None:
        name = f"{fault.name} of {'any request' if api is None else f'API {api!r}'}, number {nth}"
        self.fault = fault
        self.error = error
        self.known = 0
        """The number of counted requests, with or without an effect of the rule."""
        self.borrow = 0
        self.most_at_once = 0
        """The most requests that it took on one connection before the client got any of their responses."""
        self.reached = Moment(f"{name}: met")
        """Happens when its first request reaches the proxy, and the fault begins."""
        self.answered = Moment(f"{name}: answered")
        """Happens when the broker's response to a request that it took reaches the proxy."""
        self.told_old = Moment(f"{name}: old response sent")
        """Happens when a client reads an old response instead of the current one."""
        self.request: Request | None = None
        """The last request that it took."""
        self.response: bytes | None = None
        """The last response frame to a request that it took."""
        self._first: dict[bytes, bytes] = {}
        """The first response to each distinct request."""
        self._old_until: dict[object, float] = {}
        """The end of the old responses, by connection."""
        self._deposed_for = deposed_for
        self._loop = loop
        self._api = api
        self._where = where
        self._nth = nth
        self._times = times
        self._opened = asyncio.Event()
        self._discarded = False

    def release(self) -> None:
        """Release the held frames, and hold no more."""
        self._loop.call_soon_threadsafe(self._opened.set)

    def discard(self) -> None:
        """Break the connections of the held frames, so that these never arrive."""
        self._discarded = True
        self.release()

    def takes(self, request: Request, number: int) -> bool:
        """Count a request, the connection's ``number``th, and return whether the fault applies to it."""
        if (self._api is not None and request.api != self._api) or not self._where(request):
            return False
        self.known += 1
        if not self._is_due(number):
            return False
        self.borrow += 1
        self.request = request
        self.reached.come()
        return True

    def saw_at_once(self, unanswered: int) -> None:
        """Record how many requests that it took are unanswered on one connection."""
        self.most_at_once = max(self.most_at_once, unanswered)

    def was_answered(self, response: bytes) -> None:
        """Record the broker's response to a request that it took."""
        self.response = response
        self.answered.come()

    def as_of_then(self, connection: object, request: Request, response: bytes) -> bytes:
        """Return the first response to an equal request while the fault lasts, else the current response."""
        first = self._first.setdefault(request.question, response)
        if self._opened.is_set() or without_correlation_id(first) == without_correlation_id(response):
            return response
        if not (self._deposed_for(request) if self._deposed_for else self._for_a_moment(connection)):
            return response
        self.told_old.come()
        return in_answer_to(first, response)

    def _for_a_moment(self, connection: object) -> bool:
        """Return whether a connection still gets old responses: for `OLD_SECONDS` from the first call."""
        return time.monotonic() < self._old_until.setdefault(connection, time.monotonic() + OLD_SECONDS)

    async def hold(self) -> None:
        """Wait until released. Raises ConnectionResetError if discarded."""
        await self._opened.wait()
        if self._discarded:
            raise ConnectionResetError

    def _is_due(self, _number: int) -> bool:
        return self._nth <= self.known and (self._times is None or self.known < self._nth + self._times)


class EveryNth(Rule):
    """A fault for every nth request of each connection, counting all requests, also those that it may not take."""

    def _is_due(self, number: int) -> bool:
        return number % self._nth == 0
