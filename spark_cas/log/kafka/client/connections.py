"""What became of a producer's connections, from the lines that librdkafka logs of them."""

import re

_CHANGED = re.compile(r"(\S+): Broker changed state (\w+) -> (\w+)$")
_UP = "UP"
_IN_USE = (_UP, "REAUTH")
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
        self._up: set[str] = set()
        self._lost = False

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
        if not args or args[0] != "STATE":
            return
        found = _CHANGED.search(str(args[-1]))
        if found is None:
            return
        broker, before, after = found.groups()
        if broker.endswith(_BOOTSTRAP):
            return
        if after == _UP:
            self._up.add(broker)
        elif before in _IN_USE:
            self._up.discard(broker)
            self._lost = True
