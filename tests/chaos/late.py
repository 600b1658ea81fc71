"""A request of one transaction that arrives within the next one, as one may that went another way and took its time.

Its client waited for the answer, asked again on another connection, was answered, and went on. Only a new epoch of
the id keeps what is late from doing to the next transaction what was asked of the one before (KIP-890).
"""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Thread

from spark_cas.log.kafka.spec import KafkaSpec
from tests.chaos.faults import Undo
from tests.kafka.proxy.frames import Api
from tests.kafka.proxy.rules import Fault, Rule, Where, naming
from tests.kafka.proxy.server import Proxy

_SECONDS = 8.0
"""After so long it arrives, whether there was a next transaction or not."""
_LOOK_SECONDS = 0.01
_BEHIND_SECONDS = 0.05
"""What was sent before the request that is held up, on other connections, has been handled after so long."""


@dataclass(frozen=True, slots=True)
class _Late:
    """The rules of one such request, one of each proxy, for whoever is asked has one."""

    late: Sequence[Rule]
    middle: Sequence[Rule]

    def arrive(self) -> None:
        """Let it arrive in the middle of the next transaction, or when its time is over."""
        deadline = time.monotonic() + _SECONDS
        while not any(each.met.has_come for each in self.middle) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        time.sleep(_BEHIND_SECONDS)
        for each in self.late:
            each.release()
        while not any(each.answered.has_come for each in self.late) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        for each in self.middle:
            each.release()


class LateInTheNext:
    """``late`` arrives late, of a partition's writer, and what is ``middle`` of the next transaction waits for it.

    One at a time. It ends by itself: the client needs a while to give the first request up.
    """

    def __init__(self, proxies: Sequence[Proxy], spec: KafkaSpec, partitions: int, late: Api, middle: Api) -> None:
        self._proxies = proxies
        self._spec = spec
        self._partitions = partitions
        self._late = late
        self._middle = middle
        self._arriving: Thread | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether something is still to arrive."""
        return self._arriving is not None and self._arriving.is_alive()

    def begin(self, chance: random.Random, seconds: float) -> tuple[str, Undo] | None:
        if self.is_under_way:
            return None
        transactional_id = self._spec.transactional_id(chance.randrange(self._partitions), None)
        mine = naming(transactional_id)
        late = [each.add(Fault.HOLD_REQUEST, self._late, where=mine) for each in self._proxies]
        behind = _once_asked_again(mine, late)
        middle = [each.add(Fault.HOLD_REQUEST, self._middle, where=behind) for each in self._proxies]
        self._arriving = Thread(target=_Late(late, middle).arrive, name="late", daemon=True)
        self._arriving.start()
        return transactional_id, lambda: None


def _once_asked_again(mine: Where, late: Sequence[Rule]) -> Where:
    """Requests from the moment on at which what is late was sent again."""
    return lambda request: mine(request) and any(each.seen > 1 for each in late)
