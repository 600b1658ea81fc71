"""What can go wrong: each kind begins at a target of its choice, and ends."""

import random
from collections.abc import Callable
from typing import Protocol

Undo = Callable[[], None]


class Fault(Protocol):
    """A kind of fault. A new one is an object of this and a name in its backend's ``faults``."""

    def begin(self, chance: random.Random, seconds: float) -> tuple[str, Undo] | None:
        """Begin at a target, for so many seconds; returns which, and what ends it. None where all have it already.

        Called by one thread, as are all that it returns.
        """
        ...


class KillClient:
    """A client process dies by SIGKILL, and is started again at the end."""

    def __init__(self, clients: "list[Victim]") -> None:
        self._clients = clients

    def begin(self, chance: random.Random, seconds: float) -> tuple[str, Undo] | None:
        well = [each for each in self._clients if each.is_well]
        if not well:
            return None
        client = chance.choice(well)
        client.kill()
        return client.name, client.start


class FreezeClient:
    """A client process is stopped by SIGSTOP, and goes on at the end with all that it knew."""

    def __init__(self, clients: "list[Victim]") -> None:
        self._clients = clients

    def begin(self, chance: random.Random, seconds: float) -> tuple[str, Undo] | None:
        well = [each for each in self._clients if each.is_well]
        if not well:
            return None
        client = chance.choice(well)
        client.freeze()
        return client.name, client.thaw


class Victim(Protocol):
    """A client as faults and the run see it: a process, or a thread that behaves as one."""

    name: str

    @property
    def is_well(self) -> bool:
        """It runs, and is not frozen."""
        ...

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...

    def wait(self, seconds: float) -> bool:
        """Wait until it has ended by itself; False when it did not."""
        ...

    @property
    def complaint(self) -> str:
        """What it said when it ended with an error of its own; empty when it did not."""
        ...
