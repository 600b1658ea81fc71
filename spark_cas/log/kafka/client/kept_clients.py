"""Pool the clients of a log, so that a process that opens several logs does not reconnect each time."""

import math
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Self, TypeVar, cast

from spark_cas.log import timing
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.clients import admin_client
from spark_cas.log.kafka.client.members import Members
from spark_cas.log.kafka.client.readers import Readers
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec

_MOST_AT_REST = 2

Found = TypeVar("Found")


class ClientSet:
    """The admin client, the readers and the group members of one spec. Producers are not included.

    Only one log uses a set at a time. The set also caches recent results of requests (`lately`).
    """

    def __init__(self, spec: KafkaSpec) -> None:
        self.admin: Admin = admin_client(spec)
        self.readers = Readers(spec)
        self.members = Members(spec)
        self._seen: dict[str, tuple[float, object]] = {}
        self._made = time.monotonic()

    @classmethod
    def taken(cls, spec: KafkaSpec) -> Self:
        """Return the pooled set for the brokers and settings of a spec, or a new set if the pool has none."""
        for key in _own_keys():
            if time.monotonic() - _at_rest[key][0] > timing.current().cached_age:
                _at_rest.pop(key)[1].close()
        _, found = _at_rest.pop(_key(spec), (0.0, None))
        if not isinstance(found, cls):
            return cls(spec)
        found.admin.serve(spec)
        found.members.forget_events()
        found.readers.spec = found.members.spec = spec
        return found

    def rest(self) -> None:
        """Return the set to the pool, still connected, for the next log of these brokers in this process."""
        now, spec = time.monotonic(), self.readers.spec
        if now - self._made > timing.current().client_age:
            self.close()
            return
        self.readers.rest(spec.registry_topic, spec.layouts_topic)
        key = _key(spec)
        while key in _at_rest or len(_own_keys()) >= _MOST_AT_REST:
            _at_rest.pop(key if key in _at_rest else _own_keys()[0])[1].close()
        _at_rest[key] = now, self

    def lately(self, what: str, look: Callable[[], Found]) -> Found:
        """Return the cached result of a request if it is at most a minute old.

        Otherwise call ``look`` and cache its result.

        Use it only for values that the append itself verifies, or that are refreshed on every use.
        """
        since, found = self._seen.get(what, (-math.inf, None))
        if time.monotonic() - since > timing.current().cached_age:
            found = look()
            self._seen[what] = time.monotonic(), found
        return cast(Found, found)

    def forget(self, what: str) -> None:
        """Drop a cached result, so that the next caller sends a request."""
        self._seen.pop(what, None)

    def close(self) -> None:
        """Close all clients."""
        self.members.close()
        self.readers.close()


_at_rest: dict[tuple[int, KafkaSpec], tuple[float, ClientSet]] = {}
"""The pooled sets, oldest first, with the time they were returned.

The key has the process id: clients do not survive a fork.
"""


def _own_keys() -> list[tuple[int, KafkaSpec]]:
    return [key for key in _at_rest if key[0] == os.getpid()]


def _key(spec: KafkaSpec) -> tuple[int, KafkaSpec]:
    return os.getpid(), replace(spec, topic="", met=False)
