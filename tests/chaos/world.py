"""What a client process has to know: where the log is, where its history goes, and when it is to stop."""

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
"""Of Kafka's clients: with a transaction of 12 s and a patience of 24 s, in the ratios of those in use."""
SETTINGS = (("retry_timeout", "12s"),)
"""Of object logs: as long as a third of what clients are given to come to their end."""
WRITERS = ("w1", "w2", "w3")
OTHER_ATTEMPTS = ("a1",)
"""Clients that attempt what writers are at."""
READERS = ("r1",)
_NAME = "world.json"


@dataclass(frozen=True, slots=True)
class World:
    """A run's folder, and a log: a topic of brokers, or an address of an object log."""

    folder: Path
    address: str
    topic: str = ""
    """Of brokers, whose ``address`` is ``bootstrap.servers``."""
    settings: tuple[tuple[str, str], ...] = ()
    pace: float = 0.03
    """Seconds that a client rests after an operation, on average."""

    @property
    def history(self) -> Path:
        """The files of all histories."""
        return self.folder / "history"

    def history_of(self, client: str) -> Path:
        """The file of a client's history."""
        return self.history / f"{client}.jsonl"

    @property
    def stop(self) -> Path:
        """Clients end once this file is there."""
        return self.folder / "stop"

    @property
    def troubles(self) -> Path:
        """A file in this folder is a fault of the store that is going on."""
        return self.folder / "troubles"

    def stopped(self) -> Callable[[], bool]:
        """Whether a client process is to end: also when who started it was killed."""
        orphaned = self.orphaned()
        return lambda: self.stop.exists() or orphaned()

    @staticmethod
    def orphaned() -> Callable[[], bool]:
        """Whether who started this process was killed: the rig, or its parent where it was started by hand."""
        parent = int(os.environ.get(STARTED_BY, os.getppid()))
        return lambda: os.getppid() != parent

    def open(self, client: str = "") -> Backend:
        """The log as clients see it, in the middle of the faults; brokers are told which client it is."""
        if self.topic:
            named = {"client_id": client} if client else {}
            return KafkaLog(spec_of(self.address, self.topic, request_seconds=REQUEST_SECONDS, **named))
        spec = LogSpec.parse(self.address, dict(self.settings))
        return ObjectLog(spec, TroubledStore(open_store(spec), self.troubles))

    def write(self) -> None:
        """Leave it in its folder for processes to read."""
        for each in (self.history, self.troubles):
            each.mkdir(parents=True)
        text = json.dumps(asdict(self) | {"folder": str(self.folder)})
        (self.folder / _NAME).write_text(text)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """What `write` left."""
        found = json.loads((folder / _NAME).read_text())
        settings = tuple((name, value) for name, value in found.pop("settings"))
        return cls(**(found | {"folder": folder, "settings": settings}))
