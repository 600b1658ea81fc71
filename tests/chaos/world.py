"""The settings of a client process: the log, the file of its history, and the condition to stop."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from spark_cas.log.backend import Backend
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.objects import ObjectLog
from spark_cas.log.objects.store import open_store
from spark_cas.log.spec import LogSpec
from tests.chaos.processes import STARTED_BY
from tests.chaos.troubled_store import TroubledStore
from tests.kafka.faulted import spec_of

REQUEST_SECONDS = 2.0
"""The request timeout of Kafka clients. With a transaction timeout of 12 s and a retry timeout of 24 s, the ratios
are those of production."""
SETTINGS = (("retry_timeout", "12s"),)
"""The settings of object logs: a retry timeout far below the time in which clients have to end."""
WRITERS = ("w1", "w2", "w3")
OTHER_ATTEMPTS = ("a1",)
"""The clients that duplicate operations of the writers."""
READERS = ("r1",)
_NAME = "world.json"


@dataclass(frozen=True, slots=True)
class World:
    """The folder of a run, and a log: a topic on brokers, or the address of an object log."""

    folder: Path
    address: str
    topic: str = ""
    """The topic; ``address`` is then ``bootstrap.servers``. Empty for an object log."""
    settings: tuple[tuple[str, str], ...] = ()
    pace: float = 0.03
    """The average pause of a client after an operation (s)."""

    @property
    def history(self) -> Path:
        """The folder of all histories."""
        return self.folder / "history"

    def history_of(self, client: str) -> Path:
        """Return the file of a client's history."""
        return self.history / f"{client}.jsonl"

    @property
    def stop(self) -> Path:
        """The file that ends all clients when it exists."""
        return self.folder / "stop"

    @property
    def troubles(self) -> Path:
        """The folder with one file for each active fault of the store."""
        return self.folder / "troubles"

    def stopped(self) -> Callable[[], bool]:
        """Return a function that reports whether a client process must end: it is stopped or orphaned."""
        orphaned = self.orphaned()
        return lambda: self.stop.exists() or orphaned()

    @staticmethod
    def orphaned() -> Callable[[], bool]:
        """Return a function that reports whether the starter of this process has exited.

        This is the rig, or for a manual start the parent process.
        """
        parent = int(os.environ.get(STARTED_BY, os.getppid()))
        return lambda: os.getppid() != parent

    def open(self, client: str = "") -> Backend:
        """Open the log as clients do, with all faults. Brokers get the name of the client."""
        if self.topic:
            named = {"client_id": client} if client else {}
            return KafkaLog(spec_of(self.address, self.topic, request_seconds=REQUEST_SECONDS, **named))
        spec = LogSpec.parse(self.address, dict(self.settings))
        return ObjectLog(spec, TroubledStore(open_store(spec), self.troubles))

    def write(self) -> None:
        """Write the world to its folder, for other processes to read."""
        for each in (self.history, self.troubles):
            each.mkdir(parents=True)
        text = json.dumps(asdict(self) | {"folder": str(self.folder)})
        (self.folder / _NAME).write_text(text)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the world that `write` stored."""
        found = json.loads((folder / _NAME).read_text())
        settings = tuple((name, value) for name, value in found.pop("settings"))
        return cls(**(found | {"folder": folder, "settings": settings}))
