"""Clients as threads, for a log in memory. A kill or a freeze takes effect at the next call to the log."""

import random
import traceback
from collections.abc import Callable
from threading import Event, Thread

from spark_cas.log.backend import Backend
from tests.support.faults import FaultyLog, InjectedFaultError, When

_FROZEN_SECONDS = 120


class ThreadKilledError(BaseException):
    """A simulated SIGKILL: no handler of the code under test catches it."""


class Gate:
    """The gate that each call of a client passes: it can block the client, kill it, or fail calls at random."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.open = Event()
        self.open.set()
        self.killed = False
        self.lossy = 0.0

    def pass_(self, when: When) -> None:
        if not self.open.wait(_FROZEN_SECONDS):
            raise TimeoutError(f"frozen for {_FROZEN_SECONDS} s")
        if self.killed:
            raise ThreadKilledError
        if self._chance.random() < self.lossy:
            raise InjectedFaultError(f"{when.value}, for a time")


class GatedLog(FaultyLog):
    """A backend with a gate before and after each call. An append whose response is lost becomes `Unknown`."""

    def __init__(self, inner: Backend, gate: Gate) -> None:
        super().__init__(inner, lose_append_replies=True)
        self._gate = gate

    def _strike(self, operation: str, when: When) -> None:
        self._gate.pass_(when)


class ClientThread:
    """A client in this process. ``program`` runs with the log until it ends or is killed."""

    def __init__(self, name: str, log: Backend, seed: int, program: Callable[[Backend], None]) -> None:
        self.name = name
        self._log = log
        self._chance = random.Random(f"{seed}/{name}")
        self._program = program
        self._thread: Thread | None = None
        self.gate = Gate(self._chance)
        self.complaint = ""

    @property
    def is_well(self) -> bool:
        return self._thread is not None and self._thread.is_alive() and self.gate.open.is_set()

    def start(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        lossy, self.gate = self.gate.lossy, Gate(self._chance)
        self.gate.lossy = lossy
        self._thread = Thread(target=self._run, args=(self.gate,), name=self.name, daemon=True)
        self._thread.start()

    def kill(self) -> None:
        self.gate.killed = True
        self.gate.open.set()
        self.wait(_FROZEN_SECONDS)

    def freeze(self) -> None:
        self.gate.open.clear()

    def thaw(self) -> None:
        self.gate.open.set()

    def wait(self, seconds: float) -> bool:
        if self._thread is None:
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self, gate: Gate) -> None:
        try:
            self._program(GatedLog(self._log, gate))
        except ThreadKilledError:
            pass
        except BaseException:  # noqa: BLE001 - reported at the end
            self.complaint = f"{self.name} ended:\n{traceback.format_exc()}"
