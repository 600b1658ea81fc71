"""What can go wrong: each kind begins at a target of its choice, and ends."""

import random
from collections.abc import Callable
from functools import partial
from typing import Protocol

Undo = Callable[[], None]


class Fault(Protocol):
    """A kind of fault. A new one is an object of this and a name in its backend's ``faults``."""

    def begin(self, chance: random.Random, seconds: float) -> tuple[str, Undo] | None:
        """Begin at a target, for so many seconds; returns which, and what ends it. None where all have it already.

        Called by one thread, as are all that it returns.
        """
        ...


class ClientFault:
    """A client is struck, and goes on at the end: as one that is started again, or with all that it knew."""

    def __init__(
        self, clients: "list[Victim]", strike: "Callable[[Victim], None]", go_on: "Callable[[Victim], None]"
    ) -> None:
        self._clients = clients
        self._strike = strike
        self._go_on = go_on

    def begin(self, chance: random.Random, seconds: float) -> tuple[str, Undo] | None:
        well = [each for each in self._clients if each.is_well]
        if not well:
            return None
        client = chance.choice(well)
        self._strike(client)
        return client.name, partial(self._go_on, client)


def faults_of(clients: "list[Victim]", what: str) -> dict[str, Fault]:
    """SIGKILL and SIGSTOP, by name: ``what`` says of whom."""
    return {
        f"kill-{what}": ClientFault(clients, lambda each: each.kill(), lambda each: each.start()),
        f"freeze-{what}": ClientFault(clients, lambda each: each.freeze(), lambda each: each.thaw()),
    }


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
        """What it said when it ended with an error of its own, before it was started again too; else empty."""
        ...
