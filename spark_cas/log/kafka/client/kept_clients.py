"""Pool the clients of a log other than producers, so that a process that opens several logs does not reconnect."""

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

_MOST_IDLE = 2

Value = TypeVar("Value")


class ClientSet:
    """The admin client, the readers and the group members of one spec. Producers are not included.

    Only one log uses a set at a time. The set also caches recent results of requests (`cached`).
    """

    def __init__(self, spec: KafkaSpec) -> None:
        self.admin: Admin = admin_client(spec)
        self.readers = Readers(spec)
        self.members = Members(spec)
        self._known: dict[str, tuple[float, object]] = {}
        self._made = time.monotonic()

    @classmethod
    def borrow(cls, spec: KafkaSpec) -> Self:
        """Return the pooled set for the brokers and settings of a spec, or a new set if the pool has none."""
        for key in _own_keys():
            if time.monotonic() - _idle[key][0] > timing.current().cached_age:
                _idle.pop(key)[1].close()
        _, result = _idle.pop(_key(spec), (0.0, None))
        if not isinstance(result, cls):
            return cls(spec)
        result.admin.serve(spec)
        result.members.forget_events()
        result.readers.spec = result.members.spec = spec
        return result

    def release(self) -> None:
        """Return the set to the pool, still connected, for the next log of these brokers in this process."""
        now, spec = time.monotonic(), self.readers.spec
        if now - self._made > timing.current().client_age:
            self.close()
            return
        self.readers.release(spec.registry_topic, spec.layouts_topic)
        key = _key(spec)
        while key in _idle or len(_own_keys()) >= _MOST_IDLE:
            _idle.pop(key if key in _idle else _own_keys()[0])[1].close()
        _idle[key] = now, self

    def cached(self, subject: str, read: Callable[[], Value]) -> Value:
        """Return the cached result of a request if it is at most a minute old.

        Otherwise call ``read`` and cache its result.

        Use it only for values that the append itself verifies, that are refreshed on every use, or that change
        rarely.
        """
        since, result = self._known.get(subject, (-math.inf, None))
        if time.monotonic() - since > timing.current().cached_age:
            result = read()
            self._known[subject] = time.monotonic(), result
        return cast(Value, result)

    def forget(self, subject: str) -> None:
        """Drop a cached result, so that the next caller sends a request."""
        self._known.pop(subject, None)

    def close(self) -> None:
        """Close all clients."""
        self.members.close()
        self.readers.close()


_idle: dict[tuple[int, KafkaSpec], tuple[float, ClientSet]] = {}
"""The pooled sets, oldest first, with the time they were returned.

The key has the process id: clients do not survive a fork.
"""


def _own_keys() -> list[tuple[int, KafkaSpec]]:
    return [key for key in _idle if key[0] == os.getpid()]


def _key(spec: KafkaSpec) -> tuple[int, KafkaSpec]:
    return os.getpid(), replace(spec, topic="", reached=False)
