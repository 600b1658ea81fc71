"""What became of a producer's connections, from the lines that librdkafka logs of them."""

import re

DEBUG = "broker"
"""The client's setting ``debug`` with which it logs them."""

_CHANGED = re.compile(r"(\S+): Broker changed state (\w+) -> (\w+)$")
_UP = "UP"
_IN_USE = (_UP, "REAUTH")
_BOOTSTRAP = "/bootstrap"
"""Ends the name of the connection that a client begins with, and gives up after its first reply."""
_ADDED = re.compile(r"(\S+/(?:bootstrap|\d+)): Added new broker with NodeId -?\d+$")
"""Not a coordinator, which is added by that name and is one of the brokers."""
_LET_GO = re.compile(r"Sending TERMINATE to (\S+)$")


class Connections:
    """The logger of one client whose ``debug`` is `DEBUG`, served by the thread that uses the client.

    Every connection that ends, for whatever reason, is a line here before a request that was under way on it can be
    answered elsewhere: librdkafka queues the line while it fails the request, on the queue that it serves callbacks
    from. Its statistics tell the same,
    but by the clock: to have them right after a transaction takes one every few milliseconds, also at rest.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._up: set[str] = set()
        self._lost = False
        self.stranded = False
        """Whether the client was told of no brokers: it let go of all that it knew, and has nobody left to ask.

        A broker that is back and still fenced says so. It lasts, with ``metadata.recovery.strategy`` none, and often
        (librdkafka 2.16) with the other one (decision 0022).
        """

    @property
    def up(self) -> bool:
        """Whether a broker that the client learnt of is connected."""
        return bool(self._up)

    @property
    def steady(self) -> bool:
        """Whether one is connected, and none was lost since `forget`: every request that was sent was answered."""
        return self.up and not self._lost

    def forget(self) -> None:
        """Whatever was lost up to now does not count."""
        self._lost = False

    def log(self, _level: int, _form: str, *args: object) -> None:
        """Take a line, as `logging.Logger.log` would: facility, client, text."""
        if not args:
            return
        facility, line = args[0], str(args[-1])
        if facility == "STATE" and (found := _CHANGED.search(line)):
            self._changed(*found.groups())
        elif facility == "BROKER" and (found := _ADDED.search(line)):
            self._known.add(found[1])
            self.stranded = False
        elif facility == "DESTROY" and (found := _LET_GO.search(line)):
            self._known.discard(found[1])
            self.stranded = not self._known

    def _changed(self, broker: str, before: str, after: str) -> None:
        if broker.endswith(_BOOTSTRAP):
            return
        if after == _UP:
            self._up.add(broker)
        elif before in _IN_USE:
            self._up.discard(broker)
            self._lost = True
