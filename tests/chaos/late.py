"""Deliver a delayed request of one transaction while the next one is open, as a network with several paths may do.

The client timed out, retried on another connection, got a response, and continued. Only a new epoch of the producer
id prevents the delayed request from changing the next transaction (KIP-890).
"""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Thread

from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from tests.chaos.faults import Undo
from tests.kafka.proxy.frames import Api
from tests.kafka.proxy.rules import Fault, Rule, Where, naming
from tests.kafka.proxy.server import Proxy

_SECONDS = 8.0
"""The delayed request is delivered after this time even if no next transaction begins."""
_READ_SECONDS = 0.01
_BEHIND_SECONDS = 0.05
"""After this time, the broker has handled the requests that were sent earlier on other connections."""


@dataclass(frozen=True, slots=True)
class _Late:
    """The rules for one delayed request. Each proxy has one, because any broker may receive it."""

    late: Sequence[Rule]
    middle: Sequence[Rule]

    def arrive(self) -> None:
        """Deliver the request while the next transaction is open, or when the time is over."""
        deadline = time.monotonic() + _SECONDS
        while not any(each.reached.has_come for each in self.middle) and time.monotonic() < deadline:
            time.sleep(_READ_SECONDS)
        time.sleep(_BEHIND_SECONDS)
        for each in self.late:
            each.release()
        while not any(each.answered.has_come for each in self.late) and time.monotonic() < deadline:
            time.sleep(_READ_SECONDS)
        for each in self.middle:
            each.release()


class LateInTheNext:
    """Delay a request of type ``late`` of a partition's writer.

    Hold the requests of type ``middle`` of the next transaction until it is delivered.

    Only one such fault runs at a time. It ends by itself, because the client needs some time to give up the first
    request.
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
        """Return whether a delayed request is still to be delivered."""
        return self._arriving is not None and self._arriving.is_alive()

    def begin(self, chance: random.Random, seconds: float) -> tuple[str, Undo] | None:
        if self.is_under_way:
            return None
        transactional_id = self._spec.id_of_partition(chance.randrange(self._partitions), None)
        mine = naming(transactional_id)
        late = [each.add(Fault.HOLD_REQUEST, self._late, where=mine) for each in self._proxies]
        behind = _once_asked_again(mine, late)
        middle = [each.add(Fault.HOLD_REQUEST, self._middle, where=behind) for each in self._proxies]
        self._arriving = Thread(target=_Late(late, middle).arrive, name="late", daemon=True)
        self._arriving.start()
        return transactional_id, lambda: None


def _once_asked_again(mine: Where, late: Sequence[Rule]) -> Where:
    """Select requests that clients send after they have retried the delayed one."""
    return lambda request: mine(request) and any(each.known > 1 for each in late)
