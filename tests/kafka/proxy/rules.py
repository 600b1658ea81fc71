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
"""How long somebody is told what is old: less than clients with a timeout of two seconds go on looking again."""

DELAY_SECONDS = 0.8
"""The delay of a request by `Fault.DELAY_REQUEST`: longer than a reader polls before it checks for progress."""


class Fault(Enum):
    """What happens to a request that a rule takes.

    A held frame holds up its connection behind it, as a slow network does: what was sent later arrives later.
    """

    WATCH = auto()
    """Nothing: the rule only tells that the request came, and that it was answered."""
    HOLD_REQUEST = auto()
    """The broker gets it once the rule is released, even when its client has left by then."""
    DELAY_REQUEST = auto()
    """The broker gets it after `DELAY_SECONDS`, as on a slow network."""
    HOLD_RESPONSE = auto()
    """The broker handles it; its client hears of it once the rule is released."""
    DROP_RESPONSE = auto()
    """The broker handles it; its client never hears of it, on a connection that stays."""
    DROP_REQUEST = auto()
    """The broker never sees it, on a connection that stays: it gets what was sent behind it."""
    FAIL_RESPONSE = auto()
    """The broker handles a Produce or EndTxn request; its client reads that it failed, with the rule's error."""
    EMPTY_METADATA = auto()
    """The broker handles a Metadata request; its client reads that no broker is alive."""
    OLD_RESPONSE = auto()
    """The broker handles it; its client reads what was answered when this was asked first, as a leader that was
    deposed says it until it hears of that: in answer to what the rule's ``deposed_for`` says, or on each connection
    for a moment, once it makes a difference."""
    RESET_BEFORE_REQUEST = auto()
    """The connection breaks, and the broker never sees it."""
    RESET_BEFORE_RESPONSE = auto()
    """The broker handles it; then the connection breaks instead of carrying the response."""


class Moment:
    """Something that happens once, which a test waits for."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._event = threading.Event()

    def wait(self, seconds: float) -> None:
        """Return once it has happened. Raises TimeoutError, so that no caller can forget to look."""
        if not self._event.wait(seconds):
            raise TimeoutError(f"{self._name}: not within {seconds} s")

    @property
    def has_come(self) -> bool:
        return self._event.is_set()

    def come(self) -> None:
        self._event.set()


Where = Callable[[Request], bool]
"""Which requests a rule counts, of those of its API."""


def anywhere(_request: Request) -> bool:
    """Every request."""
    return True


def of_client(client_id: str) -> Where:
    """Requests of clients with this ``client.id``."""
    return lambda request: request.client_id == client_id


def naming(text: str) -> Where:
    """Requests that hold this text: a topic, a group or a transactional id."""
    return lambda request: text.encode() in request.frame


class Rule:
    """Takes the ``nth`` request of an API that clients send from now on, and the ``times - 1`` after it.

    ``api`` None means every API, ``times`` None all that follow. Only requests that satisfy ``where`` are counted; a
    request that is sent again counts again. Proxies make rules: see `Proxy.add`.
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
        self.seen = 0
        """Requests that it counted, taken or not."""
        self.taken = 0
        self.most_at_once = 0
        """The most requests that it took on one connection while the client had the response to none of them."""
        self.met = Moment(f"{name}: met")
        """Its first request has reached the proxy, and the fault begins."""
        self.answered = Moment(f"{name}: answered")
        """The broker's response to a request that it took has reached the proxy."""
        self.told_old = Moment(f"{name}: told what is old")
        """A client has read an old response in place of the present one."""
        self.request: Request | None = None
        """The last one that it took."""
        self.response: bytes | None = None
        """The frame that answered a request that it took, the last one."""
        self._first: dict[bytes, bytes] = {}
        """What was answered first, by what was asked."""
        self._old_until: dict[object, float] = {}
        """By connection."""
        self._deposed_for = deposed_for
        self._loop = loop
        self._api = api
        self._where = where
        self._nth = nth
        self._times = times
        self._opened = asyncio.Event()
        self._discarded = False

    def release(self) -> None:
        """Let go of what it holds, and hold nothing any more."""
        self._loop.call_soon_threadsafe(self._opened.set)

    def discard(self) -> None:
        """Let go of what it holds by breaking the connections that wait: it never arrives."""
        self._discarded = True
        self.release()

    def takes(self, request: Request, number: int) -> bool:
        """Count a request, the connection's ``number``th, and say whether the fault is for it."""
        if (self._api is not None and request.api != self._api) or not self._where(request):
            return False
        self.seen += 1
        if not self._is_due(number):
            return False
        self.taken += 1
        self.request = request
        self.met.come()
        return True

    def saw_at_once(self, unanswered: int) -> None:
        """Take note of how many requests that it took are unanswered on one connection."""
        self.most_at_once = max(self.most_at_once, unanswered)

    def was_answered(self, response: bytes) -> None:
        """Take note of the broker's response to a request that it took."""
        self.response = response
        self.answered.come()

    def as_of_then(self, connection: object, request: Request, response: bytes) -> bytes:
        """The answer to a request as it was first, while it is to be told what is old."""
        first = self._first.setdefault(request.question, response)
        if self._opened.is_set() or without_correlation_id(first) == without_correlation_id(response):
            return response
        if not (self._deposed_for(request) if self._deposed_for else self._for_a_moment(connection)):
            return response
        self.told_old.come()
        return in_answer_to(first, response)

    def _for_a_moment(self, connection: object) -> bool:
        """From the first time on that there is something old to tell it."""
        return time.monotonic() < self._old_until.setdefault(connection, time.monotonic() + OLD_SECONDS)

    async def hold(self) -> None:
        """Return when released. Raises ConnectionResetError when discarded."""
        await self._opened.wait()
        if self._discarded:
            raise ConnectionResetError

    def _is_due(self, _number: int) -> bool:
        return self._nth <= self.seen and (self._times is None or self.seen < self._nth + self._times)


class EveryNth(Rule):
    """Takes every nth request of each connection, counting those that it may take and all others, too."""

    def _is_due(self, number: int) -> bool:
        return number % self._nth == 0
