"""A store with faults for as long as a file exists, so that faults can reach into client processes.

The store fails, is slow, or returns wrong results.
"""

import random
import time
from pathlib import Path

from spark_cas.log.objects.store import Store
from spark_cas.log.objects.store_replies import NotNowError, PutReply
from tests.chaos.faults import Undo
from tests.objects.flaky_store import applied_and_refused, applied_but_unclear, lost, refused_for_nothing

SLOW, FAILING = "slow-store", "failing-store"
PUTS = {
    "lost-puts": lost,
    "lost-replies": applied_but_unclear,
    "refuses-its-own": applied_and_refused,
    "refuses-for-nothing": refused_for_nothing,
}
"""The effects on some of the puts that must not overwrite."""
TROUBLES = (SLOW, FAILING, *PUTS)
_SHARE = 0.4
_SLOW_SECONDS = 0.05


class StoreTrouble:
    """A fault of the store, for all clients at once."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._file = folder / kind

    def begin(self, chance: random.Random, seconds: float) -> tuple[str, Undo] | None:
        if self._file.exists():
            return None
        self._file.touch()
        return "store", self._file.unlink


class TroubledStore:
    """A real store with the faults in a folder."""

    def __init__(self, inner: Store, folder: Path) -> None:
        self._inner = inner
        self._folder = folder
        self._chance = random.Random()

    def create(self, path: str, data: bytes | memoryview) -> PutReply:
        self._suffer_slowness()
        if self._strikes(FAILING):
            return lost(self._inner.create, path, data)
        for kind, fault in PUTS.items():
            if self._strikes(kind):
                return fault(self._inner.create, path, data)
        return self._inner.create(path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        self._suffer()
        self._inner.overwrite(path, data)

    def get(self, path: str) -> memoryview | None:
        self._suffer()
        return self._inner.get(path)

    def get_end(self, path: str, size: int) -> memoryview | None:
        self._suffer()
        return self._inner.get_end(path, size)

    def below(self, prefix: str, after: str | None = None) -> list[str]:
        self._suffer()
        return self._inner.below(prefix, after)

    def folders(self, prefix: str) -> list[str]:
        self._suffer()
        return self._inner.folders(prefix)

    def delete(self, paths: list[str]) -> None:
        self._suffer()
        self._inner.delete(paths)

    def settle(self, path: str) -> None:
        self._inner.settle(path)

    def _suffer(self) -> None:
        self._suffer_slowness()
        if self._strikes(FAILING):
            raise NotNowError("an injected failure of the store")

    def _suffer_slowness(self) -> None:
        if self._strikes(SLOW):
            time.sleep(self._chance.uniform(0, 2 * _SLOW_SECONDS))

    def _strikes(self, kind: str) -> bool:
        return (self._folder / kind).exists() and self._chance.random() < _SHARE
