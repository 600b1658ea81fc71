"""Follow a producer's connections through the log lines of librdkafka, to reuse its instance.

Saves: the claim of the transactional id before each chunk, and the search for a coordinator before a broker is
connected. Rows `kafka-append` and `kafka-claim` of docs/performance.md.
Public path: without these lines, no instance is `steady`, so each chunk has a new one. A client without brokers then
fails at its timeout.
Tested: librdkafka 2.16. The lines are no API, so the public path is used with other versions.
"""

import re
from functools import cache

from confluent_kafka import libversion

from spark_cas.log.log_lines import log_unused

DEBUG = "broker"
"""The value of the client's ``debug`` setting that logs these lines."""

_TESTED = "2.16."

_CHANGED = re.compile(r"(\S+): Broker changed state (\w+) -> (\w+)$")
_UP = "UP"
_IN_USE = (_UP, "REAUTH")
_BOOTSTRAP = "/bootstrap"
"""Ends the name of the client's first connection, which it closes after the first reply."""
_ADDED = re.compile(r"(\S+/(?:bootstrap|\d+)): Added new broker with NodeId -?\d+$")
"""Does not match a coordinator, which is logged under that name and is one of the brokers."""
_LET_GO = re.compile(r"Sending TERMINATE to (\S+)$")


@cache
def can_follow() -> bool:
    """Return whether this package was tested with the log lines of the present librdkafka."""
    version = str(libversion()[0])
    tested = version.startswith(_TESTED)
    if not tested:
        log_unused("connections", f"librdkafka {version} may log other lines than {_TESTED}x")
    return tested


class Connections:
    """The logger of one client whose ``debug`` is `DEBUG`, served by the thread that uses the client.

    Each connection that ends is logged before the client can retry its pending requests elsewhere. librdkafka queues
    the log line while it fails the request, on the queue from which it serves callbacks.

    The statistics of librdkafka contain the same, but at fixed intervals. To have them right after a transaction, an
    interval of a few milliseconds would be necessary, even while the client is idle.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._up: set[str] = set()
        self._lost = False
        self.stranded = False
        """Whether the client has no brokers left to connect to, because a broker reported none.

        A restarted broker that is still fenced reports no brokers. The state is permanent if
        ``metadata.recovery.strategy`` is none, and often also with rebootstrap (librdkafka 2.16, decision 0011).
        """

    @property
    def up(self) -> bool:
        """Return whether a broker from the metadata is connected."""
        return bool(self._up)

    @property
    def steady(self) -> bool:
        """Return whether a broker is connected and none was lost since `forget`.

        If so, the brokers have answered every request that was sent.
        """
        return self.up and not self._lost

    def forget(self) -> None:
        """Ignore connections lost before this call."""
        self._lost = False

    def log(self, _level: int, _form: str, *args: object) -> None:
        """Read a line, with the signature of `logging.Logger.log`: facility, client, text."""
        if not args:
            return
        facility, line = args[0], str(args[-1])
        if facility == "STATE" and (result := _CHANGED.search(line)):
            self._changed(*result.groups())
        elif facility == "BROKER" and (result := _ADDED.search(line)):
            self._known.add(result[1])
            self.stranded = False
        elif facility == "DESTROY" and (result := _LET_GO.search(line)):
            self._known.discard(result[1])
            self.stranded = not self._known

    def _changed(self, broker: str, before: str, after: str) -> None:
        if broker.endswith(_BOOTSTRAP):
            return
        if after == _UP:
            self._up.add(broker)
        elif before in _IN_USE:
            self._up.discard(broker)
            self._lost = True
