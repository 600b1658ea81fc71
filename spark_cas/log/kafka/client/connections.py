"""What became of a producer's connections, from the lines that librdkafka logs of them."""

import re

_CHANGED = re.compile(r"(\S+): Broker changed state (\w+) -> (\w+)$")
_UP = "UP"
_IN_USE = (_UP, "REAUTH")
_LEARNT = re.compile(r"(\S+): Added new broker with NodeId \d+$")
_LET_GO = re.compile(r"Sending TERMINATE to (\S+)$")
_BOOTSTRAP = "/bootstrap"
"""Ends the name of the connection that a client begins with, and gives up after its first reply."""


class Connections:
    """The logger of one client whose ``debug`` is ``broker``, served by the thread that uses the client.

    Every connection that ends, for whatever reason, is a line here before a request that was under way on it can be
    answered elsewhere: librdkafka queues the line while it fails the request, on the queue that it serves callbacks
    from. Its statistics tell the same,
    but by the clock: to have them right after a transaction takes one every few milliseconds, also at rest.
    """

    def __init__(self) -> None:
        self._learnt: set[str] = set()
        self._up: set[str] = set()
        self._lost = False
        self.stranded = False
        """Whether the client was told of no brokers: it let go of all that it knew, and has nobody left to ask.

        A broker that is back and still fenced says so. It lasts, with ``metadata.recovery.strategy`` none.
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
        elif facility == "BROKER" and (found := _LEARNT.search(line)):
            self._learnt.add(found[1])
        elif facility == "DESTROY" and (found := _LET_GO.search(line)):
            self.stranded = self._learnt == {found[1]}
            self._learnt.discard(found[1])

    def _changed(self, broker: str, before: str, after: str) -> None:
        if broker.endswith(_BOOTSTRAP):
            return
        if after == _UP:
            self._up.add(broker)
        elif before in _IN_USE:
            self._up.discard(broker)
            self._lost = True
