"""The faults of a run: each type begins at a random target, and ends."""

import random
from collections.abc import Callable
from functools import partial
from typing import Protocol

Undo = Callable[[], None]


class Fault(Protocol):
    """A type of fault. To add one, implement this and add a name to its backend's ``faults``."""

    def begin(self, chance: random.Random, seconds: float) -> tuple[str, Undo] | None:
        """Begin at a random target, for ``seconds``. Return the target and the function that ends the fault.

        Return None if all targets have this fault already. One thread makes all these calls, and calls the function
        returned.
        """
        ...


class ClientFault:
    """Kill or freeze a client; at the end, restart it, or resume it with all of its state."""

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
    """Return the faults SIGKILL and SIGSTOP by name; ``what`` is the type of the clients."""
    return {
        f"kill-{what}": ClientFault(clients, lambda each: each.kill(), lambda each: each.start()),
        f"freeze-{what}": ClientFault(clients, lambda each: each.freeze(), lambda each: each.thaw()),
    }


class Victim(Protocol):
    """A client as a fault or the run sees it: a process, or a thread that behaves like one."""

    name: str

    @property
    def is_well(self) -> bool:
        """True if it runs and is not frozen."""
        ...

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...

    def wait(self, seconds: float) -> bool:
        """Wait until it ends by itself; return False if it does not."""
        ...

    @property
    def complaint(self) -> str:
        """The output of a client that ended with an error of its own; otherwise empty.

        It includes earlier processes of the client.
        """
        ...
